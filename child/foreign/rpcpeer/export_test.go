package rpcpeer

// Decode is decode, for fuzzing: the method and the id of a message.
func Decode(line []byte) (method string, id []byte, ok bool) {
	m, ok := decode(line)
	return m.Method, m.id, ok
}
