"""What each command of `attnc` does; `cli` reads the words and picks one."""
