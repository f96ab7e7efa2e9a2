package httpd

import (
	"fmt"
	"net/http"
	"strconv"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// The refusals of the checks that come before any method (SPEC §6.1).
var (
	badTarget = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the request target is not a path", "Ask for a path, as in POST /rpc.")
	badHost = apiError(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Host not allowed", api.KindForbiddenHost,
		"the Host header does not name this server", "Use 127.0.0.1, localhost or [::1] with the server's port.")
	otherHost = apiError(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Host not allowed", api.KindForbiddenHost,
		"the server's certificate is not for the host in the Host header", "Use a name or an address that the certificate has.")
	badOrigin = apiError(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Origin not allowed", api.KindForbiddenOrigin,
		"requests from web pages are refused", "Call from a program that sends no Origin header.")
	badMethod = apiError(http.StatusMethodNotAllowed, jsonrpc.CodeInvalidRequest, "Method not allowed", api.KindMethodNotAllowed,
		"the path does not take this HTTP method", "See the Allow header.")
	noKey = apiError(http.StatusUnauthorized, jsonrpc.CodeNotAuthenticated, "Authorization header required", api.KindAuthenticationRequired,
		"no API key was sent", "Send Authorization: Bearer KEY; the server's key file holds the key.")
	wrongKey = apiError(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Invalid API key", api.KindAuthenticationFailed,
		"the API key is not this server's", "Read the key file again: a server makes a new key when it starts.")
	wrongCode = apiError(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Invalid code", api.KindAuthenticationFailed,
		"the code was used, is older than a minute, or was not made by this server", "Run nexus open again, or paste the server's key.")
	badChallenge = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidParams, "Invalid parameter challenge", api.KindInvalidParams,
		"a challenge is 16 to 128 letters, digits, hyphens and underscores", "Send one that nobody can foresee.")
	unsigned = apiError(http.StatusUnauthorized, jsonrpc.CodeNotAuthenticated, "Signature required", api.KindAuthenticationRequired,
		"this server wants each request signed", "Sign each request by its member auth.")
	tooMany = apiError(http.StatusTooManyRequests, jsonrpc.CodeRateLimited, "Too many requests", api.KindRateLimited,
		"more requests came than may be answered", "Wait that long; Retry-After has the seconds as well.")
	unknownPath = apiError(http.StatusNotFound, jsonrpc.CodeInvalidParams,
		"Not found. Use POST /, POST /rpc or POST /agent/{id}.", api.KindNotFound, "there is nothing at this path",
		"Use POST / or /rpc for global methods and POST /agent/{id} for those of an agent.")
	tooLarge = apiError(http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, "Request body too large", api.KindBodyTooLarge,
		fmt.Sprintf("a body has at most %d bytes", MaxBody), "Send less, or attach files by their path.")
	needlessBody = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"a request of this path has no body", "Ask without a body.")
	badGzip = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the body is not what its Content-Encoding says", "Send it packed by gzip, or as it is and without Content-Encoding.")
	tooSlow = apiError(http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "Request timeout", api.KindRequestTimeout,
		"the request did not arrive in time", "Send the whole request at once.")
	brokenBody = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the body did not arrive whole")
	malformedHTTP = apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		"the request is not well-formed HTTP/1.1")
	draining = new(rpc.ToError(rpc.ErrNotAccepted))
)

func apiError(status int, code jsonrpc.Code, message string, kind api.ErrorKind, details string, suggestions ...string) *rpc.Error {
	return new(rpc.Refuse(status, code, message, kind, details, suggestions...))
}

// badType refuses a body for what its Content-Type declares, badEncoding for how it
// is packed.
func badType(declared string) *rpc.Error {
	return unsupported("the body is declared as "+strconv.Quote(rpc.ClipName(declared)), "Send Content-Type: application/json, once.")
}

func badEncoding(encoding string) *rpc.Error {
	return unsupported("Content-Encoding "+strconv.Quote(rpc.ClipName(encoding))+" is not understood: gzip alone is",
		"Send the body packed by gzip, or as it is and without Content-Encoding.")
}

func unsupported(details, way string) *rpc.Error {
	return apiError(http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "Unsupported media type", api.KindUnsupportedMediaType,
		details, way)
}

// badSignature refuses signed requests, for a reason that says nothing about keys.
func badSignature(reason string) *rpc.Error {
	return apiError(http.StatusForbidden, jsonrpc.CodeNotAuthenticated, "Invalid signature", api.KindAuthenticationFailed, reason,
		"Sign each request once, with its own timestamp.")
}

// overRate refuses a batch that no waiting makes good.
func overRate(n, perMinute int) *rpc.Error {
	return apiError(http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "Invalid Request", api.KindInvalidRequest,
		fmt.Sprintf("a batch of %d requests is more than the %d a minute that a key may make", n, perMinute), "Ask in smaller batches.")
}
