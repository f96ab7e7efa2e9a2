package httpapi

// Events is the reader of event streams.
var Events = events
