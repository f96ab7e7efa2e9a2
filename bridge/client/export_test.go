package client

// What tests reach without a server.
var (
	ReadEvents = readEvents
	ReadHealth = readHealth
	Decode     = decode
	Encode     = encode
	Again      = (*Client).again
)

// ReadPlanPart is how a notification is read.
var ReadPlanPart = planPart
