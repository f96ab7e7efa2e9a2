package client

// What fuzz targets reach without a server.
var (
	ReadEvents = readEvents
	ReadHealth = readHealth
	Decode     = decode
)
