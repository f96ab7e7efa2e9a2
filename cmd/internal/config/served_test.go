package config_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/config"
)

// What an agent of a server writes into its directory keeps no agent there from its start, and has none
// use other providers than the server's.
func TestProjectOfAServedAgent(t *testing.T) {
	const ev = `"providers":{"ev":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none","models":[{"id":"x"},{"id":"llama"}]}}`
	const some = vendors + `,"default_model":"maker/m","default_provider":"open"}`
	open := strings.Replace(some, `{"providers":{`, `{"providers":{"open":{"type":"openai","base_url":"http://127.0.0.1:2/v1","auth_method":"none"},`, 1)
	for _, tt := range []struct{ name, home, project, want, left string }{
		{"a provider", open, `{` + ev + `}`, "open maker/m", ""},
		{"a default of the home", open, `{"default_model":"open/other"}`, "open other", ""},
		{"its own default", open, `{` + ev + `,"default_model":"ev/x"}`, "open maker/m", `"default_model" chooses the provider "ev" of the project`},
		{"its own default, without a home's", `{}`, `{` + ev + `,"default_model":"ev/x"}`, "offline offline", `"default_model" chooses the provider "ev"`},
		{"its own default, by its list", open, `{` + ev + `,"default_model":"x"}`, "open maker/m", `"default_model" chooses the provider "ev"`},
		{"its own default provider", open, `{` + ev + `,"default_provider":"ev"}`, "open maker/m", `"default_provider" chooses the provider "ev"`},
		{"a profile", open, `{` + ev + `,"profiles":{"p":{"model":"ev/x"}}}`, "open maker/m", `"profiles.p.model" chooses the provider "ev"`},
		{"a profile's provider", open, `{` + ev + `,"profiles":{"p":{"provider":"ev"}}}`, "open maker/m", `"profiles.p.provider" chooses the provider "ev"`},
		{"an offline one", open, `{"providers":{"p":{"type":"offline"}},"default_model":"p/offline"}`, "open maker/m", `"default_model" chooses the provider "p"`},
		{"the name of a maker", open, strings.Replace(`{`+ev+`}`, `"ev"`, `"maker"`, 1), "open maker/m", ""},
		{"a model of the home's list", vendors + `,"default_model":"small"}`, `{"providers":{"a":{"type":"openai","base_url":"http://[::1]/v1","auth_method":"none","models":[{"id":"small"}]}}}`, "", ""},
		{"a provider without an address", open, `{"default_provider":"azure","default_model":"azure/m"}`, "open maker/m", `cannot be chosen`},
		{"a provider without a model", `{}`, `{"default_provider":"openai"}`, "offline offline", `"default_provider" leaves an agent that names no model without one`},
		{"an error", open, `{"default_model":`, "open maker/m", "config.json:1:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home, cwd := t.TempDir(), t.TempDir()
			personal := write(t, filepath.Join(home, "config.json"), tt.home)
			project := write(t, filepath.Join(cwd, ".nexus3", "config.json"), tt.project)
			environ := []string{"NEXUS_HOME=" + home}
			c, err := config.LoadServed(personal, environ, cwd)
			if err != nil {
				t.Fatal(err)
			}
			e, ok := errors.AsType[*config.FileError](c.LeftOut())
			if tt.left == "" && c.LeftOut() != nil || tt.left != "" && (!ok || !e.Project || e.Path != project || !strings.Contains(e.Error(), tt.left)) {
				t.Errorf("left out: %v, want …%s…", c.LeftOut(), tt.left)
			}
			if tt.want == "" { // as if there were no project
				alone, err := config.LoadAs(personal, environ, "")
				if err != nil {
					t.Fatal(err)
				}
				choice, err := alone.Choose(config.Wish{})
				if err != nil {
					t.Fatal(err)
				}
				tt.want = choice.Name + " " + choice.Model
			}
			if choice, err := c.Choose(config.Wish{}); err != nil || choice.Name+" "+choice.Model != tt.want {
				t.Errorf("the default is %s %s, %v, want %s", choice.Name, choice.Model, err, tt.want)
			}
		})
	}
}

// Who asks for a provider of the project's file hears why there is none, and no such file takes a model of the home away.
func TestChooseOfAServedAgent(t *testing.T) {
	home, cwd := t.TempDir(), t.TempDir()
	personal := write(t, filepath.Join(home, "config.json"), `{"providers":{
		"open":{"type":"openai","base_url":"http://127.0.0.1:2/v1","auth_method":"none"},
		"listing":{"type":"openai","base_url":"http://127.0.0.1:2/v1","auth_method":"none","models":[{"id":"ev/known"}]}
	},"default_provider":"open","settings":{"fallback_model":"ev/fallback"}}`)
	const ev = `{"providers":{"ev":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"}}`
	for _, text := range []string{ev + `}`, ev + `,"default_model":"ev/x"}`, ev + `,"limits":{}}`} {
		project := write(t, filepath.Join(cwd, ".nexus3", "config.json"), text)
		c, err := config.LoadServed(personal, []string{"NEXUS_HOME=" + home}, cwd)
		if err != nil {
			t.Fatal(err)
		}
		want := "provider ev is a project's own, of " + project
		for _, w := range []config.Wish{{Model: "ev/x"}, {Provider: "ev", Model: "x"}, {Provider: "ev"}, {Model: "ev/x", Current: "listing"}} {
			if choice, err := c.Choose(w); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v: %+v, %v, want …%s…", text, w, choice, err, want)
			}
		}
		if _, err := c.Provider("ev"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		for want, w := range map[string]config.Wish{
			"listing ev/known": {Model: "ev/known"}, "open ev/fallback": {Model: "ev/fallback"}, "open ev/x": {Provider: "open", Model: "ev/x"},
		} {
			if choice, err := c.Choose(w); err != nil || choice.Name+" "+choice.Model != want {
				t.Errorf("%s: %+v: got %s %s, %v", text, w, choice.Name, choice.Model, err)
			}
		}
	}
}
