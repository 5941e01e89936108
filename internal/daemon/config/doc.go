// Package config is the command line and the configuration file of the proxy.
//
//	flags ──┐
//	        ├─► Load ─► Config ─► NodeSettings, Pace, Log …   what the proxy is made of
//	file ───┘    ▲        │
//	  │          │        └─► Write                           what it comes down to, as a file
//	  └─► Watch ─┘
//	        └─► Update, with Compare(old, new)                what changed, and what can be applied in place
//
// A file holds up to two YAML documents. The first is kube-proxy's own
// KubeProxyConfiguration, unchanged; the second, SluiceConfiguration, holds what
// kube-proxy has no name for. kube-proxy v1.36 reads the first document only, so
// one file serves both programs and the way back stays open.
//
// Names, defaults and rules are those of kube-proxy v1.36 on Linux; docs/configuration.md
// lists where this package differs on purpose. Values are checked all at once: an
// InvalidError tells every mistake, each with file and line or flag, field, value
// and what is allowed.
package config
