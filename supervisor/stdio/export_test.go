package stdio

// Route is what makes a frame of a line.
var Route = route

// SparePause is how long no spare is started after so many failures.
var SparePause = sparePause
