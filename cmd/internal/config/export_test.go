package config

// Table is the table of models, by service.
func Table() map[string][]Model {
	all := map[string][]Model{}
	for _, service := range []string{"anthropic", "deepseek", "gemini", "groq", "mistral", "openai"} {
		for _, e := range table(service) {
			all[service] = append(all[service], e.model())
		}
	}
	return all
}
