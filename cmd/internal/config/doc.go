// Package config turns the environment and the configuration files into one
// typed value. It is the only reader of the environment.
//
//	c, err := config.Load(os.Environ(), cwd)          // or with files of the user's own
//	choice, err := c.Models.Choose(config.Wish{Model: "gpt-4o-mini"})
//	key, err := c.Key(choice)
//	path := c.Home.KeyPath(8765)                      // $NEXUS_HOME/server.key
//
// A Config is not changed after Load and is safe for concurrent use. Package
// config refuses members it does not know, by name, and never puts the value
// of a key into an error. See SPEC.md §2 and §4.3.
package config
