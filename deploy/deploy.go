// Package deploy has the manifests that the commands print.
package deploy

import _ "embed" // install.yaml

// Install is deploy/install.yaml.
//
//go:embed install.yaml
var Install string
