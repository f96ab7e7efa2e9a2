package client

// ReadEvents lets a fuzz target reach the parser without a server.
var ReadEvents = readEvents
