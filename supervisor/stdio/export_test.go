package stdio

// Route is what makes a frame of a line.
var Route = route
