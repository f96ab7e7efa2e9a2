package progress

// Line is the bar in so many columns.
var Line = line
