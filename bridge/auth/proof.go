package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"

	"nexus.internal/protocol/jsonrpc"
)

// verifier is what a server keeps of a key that it need not send: the SHA-256
// of its text, in hexadecimal. Who has it can prove to have the key, but not use
// it.
type verifier string

func (k Key) verifier() verifier {
	sum := sha256.Sum256([]byte(k.text))
	return verifier(hex.EncodeToString(sum[:]))
}

// id names the key to others: 12 hexadecimal digits that say nothing about it.
func (v verifier) id() string {
	sum := sha256.Sum256([]byte(v))
	return hex.EncodeToString(sum[:])[:12]
}

// prove is the answer to a challenge (SPEC §6.5).
func (v verifier) prove(nonce, address string) string {
	return mac(string(v), "nexus-proof-v1\n"+nonce+"\n"+address)
}

func mac(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	_, _ = h.Write([]byte(text)) // never fails
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// ID names the key to others, and says nothing about it.
func (k Key) ID() string { return k.verifier().id() }

// CertificateAddress is what stands for a server's address in a proof on a connection by TLS: the SHA-256 of the
// server's certificate, as DER. So a challenge that is passed on to a server with another certificate yields a wrong proof.
func CertificateAddress(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return "certificate:" + hex.EncodeToString(sum[:])
}

// Prove is what a server that has the key answers to the challenge nonce on a
// connection to its address, as in 127.0.0.1:8765 or [::1]:8765, or [CertificateAddress].
func (k Key) Prove(nonce, address string) string { return k.verifier().prove(nonce, address) }

// Proves reports whether proof is that answer.
func (k Key) Proves(nonce, address, proof string) bool {
	return !k.IsZero() && subtle.ConstantTimeCompare([]byte(k.Prove(nonce, address)), []byte(proof)) == 1
}

// Nonce makes a challenge that nobody has seen.
func Nonce() string { return rand.Text() }

var nonce = regexp.MustCompile(`^[A-Za-z0-9_-]{16,128}$`)

// ValidNonce reports whether text can be a challenge: 16 to 128 letters, digits,
// hyphens and underscores.
func ValidNonce(text string) bool { return nonce.MatchString(text) }

// RequestText is what the signature of a request is made of (SPEC §6.5): its time
// as written, the path of the request line, and its members as the body has them.
func RequestText(timestamp, path string, r jsonrpc.Request) string {
	return strings.Join([]string{"nexus-request-v1", timestamp, path, r.ID.String(), r.Method, string(r.Params)}, "\n")
}

// Sign is the signature of text by the key (SPEC §6.5).
func (k Key) Sign(text string) string { return mac(k.text, text) }

// Signed reports whether signature is that of text by the key.
func (k Key) Signed(text, signature string) bool {
	return !k.IsZero() && subtle.ConstantTimeCompare([]byte(k.Sign(text)), []byte(signature)) == 1
}
