package jsonrpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/strict"
)

// Body is what one message of a client holds.
type Body struct {
	// Batch says that the answers go into an array, even if there is one.
	Batch bool
	// Items are at least one.
	Items []Item
}

// Item is one request, or the reason why there is none.
type Item struct {
	Request Request
	// Refused, if set, is the whole answer and Request is empty. Its id is the
	// request's where that could be read without doubt, else null.
	Refused *Response
}

// DecodeBody reads a message: one request, or a batch of at most maxItems. It
// never fails: what is wrong with the message as a whole (not JSON in UTF-8,
// an empty batch, too many items) is a single refused item and no batch; what
// is wrong with one item of a batch is that item's alone.
func DecodeBody(body []byte, maxItems int) Body {
	sound := strict.Valid(body) == nil
	if !sound && !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
		problem := "the body is not JSON"
		if err := strict.ValidText(body); err != nil {
			problem = err.Error()
		}
		return single(refuse(NullID, CodeParseError, problem))
	}
	value := gjson.ParseBytes(body)
	if !value.IsArray() {
		return single(decodeItem(value, sound))
	}
	batch := Body{Batch: true}
	tooMany := false
	value.ForEach(func(_, element gjson.Result) bool {
		tooMany = len(batch.Items) == maxItems
		if !tooMany {
			batch.Items = append(batch.Items, decodeItem(element, sound))
		}
		return !tooMany
	})
	switch {
	case tooMany:
		return single(refuse(NullID, CodeInvalidRequest, fmt.Sprintf("the batch has more than %d items", maxItems)))
	case len(batch.Items) == 0:
		return single(refuse(NullID, CodeInvalidRequest, "the batch is empty"))
	}
	return batch
}

func single(item Item) Body { return Body{Items: []Item{item}} }

func refuse(id ID, code Code, details string) Item {
	e := &Error{
		Code: code, Message: "Invalid Request",
		Data: &ErrorData{
			Type: TypeInvalidRequest, Details: redact.Keys(details),
			RecoverySuggestions: []string{"Send a JSON-RPC 2.0 request object, or an array of them."},
		},
	}
	if code == CodeParseError {
		e.Message, e.Data.Type = "Parse error", TypeParseError
		e.Data.RecoverySuggestions = []string{"Send the request as JSON in UTF-8."}
	}
	return Item{Refused: &Response{ID: id, Error: e}}
}

// decodeItem reads one request out of a value that is well-formed, save that
// members may stand twice unless it is sound.
func decodeItem(value gjson.Result, sound bool) Item {
	if !value.IsObject() {
		return refuse(NullID, CodeInvalidRequest, "a request is an object")
	}
	env, problem := readEnvelope(value)
	if problem == "" && !sound {
		if err := strict.Valid([]byte(value.Raw)); err != nil {
			problem = err.Error()
		}
	}
	if problem == "" {
		problem = env.requestProblem()
	}
	if problem != "" {
		return refuse(env.answerID(), CodeInvalidRequest, problem)
	}
	method, _ := env.member("method")
	request := Request{Method: strings.Clone(method.Str), ID: env.id()}
	if params, ok := env.member("params"); ok {
		request.Params = jsontext.Value(params.Raw)
		request.Positional = params.IsArray()
	}
	if auth, ok := env.member("auth"); ok {
		request.Auth = jsontext.Value(auth.Raw)
	}
	return Item{Request: request}
}

// envelope is the members of an object that this package knows by name.
type envelope struct {
	members [len(envelopeMembers)]gjson.Result // in the order of envelopeMembers; without Raw those that are not there
	idTwice bool
}

var envelopeMembers = [...]string{"jsonrpc", "method", "params", "id", "auth", "result", "error"}

// member is one of the envelopeMembers; false if it is not there.
func (e *envelope) member(name string) (gjson.Result, bool) {
	found := e.members[slices.Index(envelopeMembers[:], name)]
	return found, found.Raw != ""
}

// readEnvelope collects the members of an object and says what is wrong with
// their names, "" if nothing is.
func readEnvelope(object gjson.Result) (env envelope, problem string) {
	object.ForEach(func(key, value gjson.Result) bool {
		for i, name := range envelopeMembers {
			switch {
			case key.Str == name:
				if env.members[i].Raw != "" {
					env.idTwice = env.idTwice || name == "id"
					problem = fmt.Sprintf("member %q stands twice", name)
				}
				env.members[i] = value
			case strings.EqualFold(key.Str, name):
				problem = fmt.Sprintf("member %.64q must be written %q", key.Str, name)
			}
		}
		return true
	})
	return env, problem
}

// id is the request's id; the zero ID if there is none or it is of a wrong type.
func (e *envelope) id() ID {
	member, ok := e.member("id")
	if !ok || (member.Type != gjson.String && member.Type != gjson.Number && member.Type != gjson.Null) {
		return ID{}
	}
	return ID{raw: strings.Clone(member.Raw)} // a part of the whole body, which nobody is to keep
}

// answerID is the id of a refusal.
func (e *envelope) answerID() ID {
	if id := e.id(); !id.IsZero() && !e.idTwice {
		return id
	}
	return NullID
}

// requestProblem says why the members are no request, "" if they are one.
func (e *envelope) requestProblem() string {
	if _, ok := e.member("id"); ok && e.id().IsZero() {
		return `member "id" is a string, a number or null`
	}
	if v, _ := e.member("jsonrpc"); v.Type != gjson.String || v.Str != Version {
		return `member "jsonrpc" must be "2.0"`
	}
	if method, _ := e.member("method"); method.Type != gjson.String {
		return `member "method" must be a string`
	}
	if params, ok := e.member("params"); ok && !params.IsObject() && !params.IsArray() && params.Type != gjson.Null {
		return `member "params" must be an object`
	}
	return ""
}

// DecodeResponse reads a response to one request. An error says that data is
// no such thing; the response's own error is in Response.Error.
func DecodeResponse(data []byte) (Response, error) {
	if err := strict.Valid(data); err != nil {
		return Response{}, fmt.Errorf("decode response: %w", err)
	}
	object := gjson.ParseBytes(data)
	if !object.IsObject() {
		return Response{}, errors.New("decode response: a response is an object")
	}
	env, problem := readEnvelope(object)
	result, hasResult := env.member("result")
	failure, hasError := env.member("error")
	version, _ := env.member("jsonrpc")
	switch {
	case problem != "":
	case version.Str != Version:
		problem = `member "jsonrpc" must be "2.0"`
	case env.id().IsZero():
		problem = `member "id" must be a string, a number or null`
	case hasResult == hasError:
		problem = `either "result" or "error" must be there`
	}
	if problem != "" {
		return Response{}, fmt.Errorf("decode response: %s", problem)
	}
	response := Response{ID: env.id()}
	if hasResult {
		response.Result = jsontext.Value(result.Raw)
		return response, nil
	}
	var err error
	if response.Error, err = decodeError(failure); err != nil {
		return Response{}, fmt.Errorf("decode response: %w", err)
	}
	return response, nil
}

// decodeError reads an error whose data may be of any shape: what is not ours
// is kept as its JSON in Details.
func decodeError(value gjson.Result) (*Error, error) {
	var wire struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    jsontext.Value `json:"data" wire:"default"`
	}
	if err := strict.Fill([]byte(value.Raw), &wire, strict.IgnoreUnknown); err != nil {
		return nil, err
	}
	e := &Error{Code: Code(wire.Code), Message: wire.Message}
	if len(wire.Data) == 0 || wire.Data.Kind() == 'n' {
		return e, nil
	}
	e.Data = new(ErrorData)
	if err := strict.Fill(wire.Data, e.Data, strict.RejectUnknown); err != nil {
		e.Data = &ErrorData{Details: string(wire.Data)}
	}
	return e, nil
}
