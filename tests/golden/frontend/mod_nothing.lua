local nothing = 1
