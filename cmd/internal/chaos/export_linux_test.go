package chaos

// ProcessesWith is what finds the processes that are left.
var ProcessesWith = processesWith
