package cluster

// EngineOptions are the first line that nexus-cluster reads, in JSON: which machine it serves, of which cluster.
type EngineOptions struct {
	Cluster string `json:"cluster"`
	Machine string `json:"machine"`
	// Listen is where the other machines reach this one, HOST:PORT.
	Listen string `json:"listen"`
	// Join are the addresses of all machines, this one's, too.
	Join []string `json:"join"`
	// Dir is where what the machines agree on is kept.
	Dir string `json:"dir"`
	// Certificates is a directory as nexus cluster init makes it. Only a machine on loopback may do without.
	Certificates *string `json:"certificates,omitzero"`
}

// EngineReady is the only line that nexus-cluster writes, in JSON: where it takes clients, and the token that they send.
type EngineReady struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}
