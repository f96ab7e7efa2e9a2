package acp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// maxModels is how many models of a program are listed.
const maxModels = 1000

// models are those that a program offers: as a configuration option of the session, or, in older
// programs, as a list of its own.
type models struct {
	option  string // the option's id; "" for the list
	current string
	offered []protocol.Model
}

// read takes them out of an answer or an update, if they are in it.
func (m *models) read(from gjson.Result) {
	for _, option := range from.Get("configOptions").Array() {
		if option.Get("type").Str != "select" || (option.Get("category").Str != "model" && option.Get("id").Str != "model") {
			continue
		}
		*m = models{option: option.Get("id").Str, current: option.Get("currentValue").Str}
		for _, o := range option.Get("options").Array() {
			if group := o.Get("options"); group.IsArray() {
				for _, o := range group.Array() {
					m.add(o.Get("value").Str, o.Get("name").Str)
				}
				continue
			}
			m.add(o.Get("value").Str, o.Get("name").Str)
		}
		return
	}
	list := from.Get("models")
	if !list.IsObject() {
		return
	}
	*m = models{current: list.Get("currentModelId").Str}
	for _, o := range list.Get("availableModels").Array() {
		m.add(o.Get("modelId").Str, o.Get("name").Str)
	}
}

func (m *models) add(id, name string) {
	if id != "" && len(m.offered) < maxModels {
		m.offered = append(m.offered, protocol.Model{ModelID: id, ModelName: name})
	}
}

// check says why there is no such model.
func (m *models) check(model string) error {
	if len(m.offered) == 0 {
		return fmt.Errorf("the program offers no choice of models, so it cannot be told to use %q", model)
	}
	var names []string
	for _, o := range m.offered {
		if o.ModelID == model {
			return nil
		}
		names = append(names, o.ModelID)
	}
	if n := len(names); n > 20 {
		names = append(names[:20:20], fmt.Sprintf("%d more", n-20))
	}
	return fmt.Errorf("the program offers no model %q, but %s", model, strings.Join(names, ", "))
}

// setModel has the program use another model.
func (s *session) setModel(ctx context.Context, model string) error {
	s.mu.Lock()
	id, option, err := s.id, s.models.option, s.models.check(model)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	type setOption struct {
		Session string `json:"sessionId"`
		Option  string `json:"configId"`
		Value   string `json:"value"`
	}
	type setModel struct {
		Session string `json:"sessionId"`
		Model   string `json:"modelId"`
	}
	method, params := "session/set_model", any(setModel{id, model})
	if option != "" {
		method, params = "session/set_config_option", setOption{id, option, model}
	}
	result, err := s.peer.Call(ctx, method, params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models.current = model
	s.models.read(result)
	return nil
}

// withModels is a session of a program that offers models: a [foreign.ModelSetter].
type withModels struct{ *session }

// SetModel implements [foreign.ModelSetter].
func (s *withModels) SetModel(ctx context.Context, model string) error {
	return s.setModel(ctx, model)
}

// Models implements [foreign.ModelSetter].
func (s *withModels) Models() []protocol.Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.models.offered)
}
