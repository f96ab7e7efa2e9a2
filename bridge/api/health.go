package api

type (
	// Health is the body of GET /healthz.
	Health struct {
		Status  string `json:"status"`  // ok or draining
		Service string `json:"service"` // always Service
		Version string `json:"version"`
		// SignaturesRequired says that the server refuses requests that are not signed (SPEC §6.5).
		SignaturesRequired bool `json:"signatures_required,omitzero"`
		// Proof answers a challenge of the client (SPEC §6.5); "" without one.
		Proof string `json:"proof,omitzero"`
		// KeysUnknown says, in place of a proof, that the server may have the key nevertheless: it does not know the keys of its cluster yet.
		KeysUnknown bool `json:"keys_unknown,omitzero"`
	}

	// Readiness is the body of GET /readyz.
	Readiness struct {
		Status          string            `json:"status"`  // ready, unready or draining
		Reasons         []string          `json:"reasons"` // why it is not ready; empty if it is
		Version         string            `json:"version"`
		ProtocolVersion int               `json:"protocol_version"` // of the child protocol
		Agents          map[string]int    `json:"agents"`           // by state; states that no agent is in are missing
		TurnsRunning    int               `json:"turns_running"`
		TurnsWaiting    int               `json:"turns_waiting"`
		Guard           string            `json:"guard"`    // means of ending whole process trees; "" if none
		Checks          map[string]string `json:"checks"`   // by name: "ok", or what is wrong
		Warnings        []string          `json:"warnings"` // of the configuration, which do not make it unready
		Goroutines      int               `json:"goroutines"`
	}
)

// Service is the name of a nexus server in GET /healthz.
const Service = "nexus"
