package httpd

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/replay"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/strict"
)

// signatureLife is how old a signature may be, or how far ahead (SPEC §6.5).
const signatureLife = 300 * time.Second

// noFullKeys is the problem of a signature alone that no full key has made.
const noFullKeys = "it is no full key's signature of this request"

// signatures are those of a body, all of them right.
type signatures struct {
	texts []string
	now   time.Time // as of which they are good
	until time.Time // when the last of them is over
}

// checkSigned checks the signatures of all requests in a body, before any of
// them is carried out: each must be signed if there is no other proof of a key, or
// if the server wants that, and none used before.
func (s *Server) checkSigned(x *request, items []jsonrpc.Item) (signed signatures, refused *rpc.Error) {
	signed.now = time.Now()
	for _, item := range items {
		switch {
		case item.Refused != nil && !x.key.IsZero():
			continue // it is answered as what it is, and nothing is done
		case item.Request.Auth == nil && (x.key.IsZero() || s.access.Load().RequireSignatures):
			if x.key.IsZero() {
				return signed, noKey
			}
			return signed, unsigned
		case item.Request.Auth == nil:
			continue
		}
		signature, at, problem := s.verify(x, item.Request)
		if err := s.o.Keys.Unknown(); err != nil && problem == noFullKeys {
			return signed, x.retryAfter(new(rpc.ToError(err)), time.Second) // it may be one's
		}
		if problem != "" {
			return signed, badSignature(problem)
		}
		if signed.now.Sub(at).Abs() > signatureLife {
			return signed, badSignature("its timestamp is more than 300 seconds from the server's time")
		}
		signed.texts = append(signed.texts, signature)
		if end := at.Add(signatureLife); end.After(signed.until) {
			signed.until = end
		}
	}
	if !s.o.Signatures.Fresh(signed.texts) {
		return signed, badSignature(replay.ErrUsed.Error())
	}
	return signed, nil
}

// useSignatures uses the signatures of a body that is carried out next.
func (s *Server) useSignatures(x *request, signed signatures) *rpc.Error {
	// A full key ends with this server; what another one has signed must not be done
	// again by the next one.
	key := x.by.Grant.ID
	if x.by.Grant.Scope == auth.ScopeFull {
		key = ""
	}
	switch err := s.o.Signatures.Use(x.r.Context(), signed.texts, key, signed.now, signed.until); {
	case errors.Is(err, replay.ErrUsed):
		return badSignature(err.Error())
	case errors.Is(err, replay.ErrFull):
		return x.retryAfter(tooMany, time.Minute)
	case errors.Is(err, auth.ErrNoMajority):
		return new(rpc.ToError(err))
	case err != nil:
		x.log.fault = fmt.Errorf("remember signatures: %w", err)
		return new(rpc.ToError(err).With(http.StatusServiceUnavailable))
	}
	return nil
}

// verify checks one signature, with the key that was presented, else with the
// full keys, which alone the server knows. problem is "" if it is right.
func (s *Server) verify(x *request, r jsonrpc.Request) (signature string, at time.Time, problem string) {
	var signed struct {
		Timestamp jsontext.Value `json:"timestamp"`
		Signature string         `json:"signature"`
	}
	if err := strict.Fill(r.Auth, &signed, strict.RejectUnknown); err != nil {
		return "", at, "member auth: " + err.Error()
	}
	seconds, err := strconv.ParseFloat(string(signed.Timestamp), 64)
	if err != nil || math.Abs(seconds) > 1e12 {
		return "", at, "member auth.timestamp must be seconds since 1970"
	}
	path, _, _ := strings.Cut(x.r.RequestURI, "?")
	text := auth.RequestText(string(signed.Timestamp), path, r)
	if key := x.key; !key.IsZero() {
		if !key.Signed(text, signed.Signature) {
			return "", at, "it is not the presented key's signature of this request"
		}
	} else if grant, valid, ok := s.o.Keys.CheckSignature(text, signed.Signature); ok {
		x.setPrincipal(rpc.Principal{Grant: grant, Valid: valid})
		x.tellScope(grant)
	} else {
		return "", at, noFullKeys
	}
	return signed.Signature, time.UnixMicro(int64(seconds * 1e6)), ""
}
