package protocol

// Version is the protocol version this package speaks (SPEC §3.1). A child
// states its own in [Ready]; a parent refuses to go on if they differ.
const Version = 1
