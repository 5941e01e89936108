package config

import (
	"net/url"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SecurityConfiguration protects metricsBindAddress if other hosts reach it; see docs/security.md. It is on with a
// certificate.
type SecurityConfiguration struct {
	// CertFile and KeyFile are PEM files with the server's certificate, with its chain, and the key. Without KeyFile,
	// CertFile has both. They are read again when they change. Default: none.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// SelfSigned makes the process sign a certificate, which clients cannot verify. Default: false.
	SelfSigned bool `json:"selfSigned"`
	// ClientCAFile is a PEM file with the authorities of client certificates. Default: none.
	ClientCAFile string `json:"clientCAFile"`
	// Authorization says who gets answers: AuthorizationDelegated asks the API server, AuthorizationNone answers
	// everyone. Default: AuthorizationDelegated.
	Authorization string `json:"authorization"`
	// Inspection makes inspection.bindAddress speak HTTPS, and answer callers that the API server allows: their tokens
	// have the audience sluice.dev. It needs no certificate. Default: false.
	Inspection bool `json:"inspection"`
}

// Values of SecurityConfiguration.Authorization.
const (
	AuthorizationDelegated = "delegated"
	AuthorizationNone      = "none"
)

// On reports whether there is a certificate.
func (s *SecurityConfiguration) On() bool { return s.CertFile != "" || s.SelfSigned }

// check checks that the fields fit together.
func (s *SecurityConfiguration) check(found *findings) {
	const p = sluicePrefix + "security."
	oneOf(found, "security.authorization", s.Authorization, "delegated or none", AuthorizationDelegated, AuthorizationNone)
	for _, file := range [][2]string{{"certFile", s.CertFile}, {"keyFile", s.KeyFile}, {"clientCAFile", s.ClientCAFile}} {
		if file[1] != "" && !filepath.IsAbs(file[1]) {
			found.wrong(p+file[0], file[1], "an absolute path of a PEM file")
		}
	}
	if s.KeyFile != "" && s.CertFile == "" {
		found.wrong(p+"keyFile", s.KeyFile, "empty without security.certFile")
	}
	if s.SelfSigned && s.CertFile != "" {
		found.wrong(p+"selfSigned", true, "false, because security.certFile is set")
	}
	if s.ClientCAFile != "" && !s.On() {
		found.wrong(p+"clientCAFile", s.ClientCAFile, "empty without security.certFile or security.selfSigned")
	}
}

// TracingConfiguration exports the path of changes as OpenTelemetry spans; see docs/monitoring.md.
type TracingConfiguration struct {
	// Endpoint is the URL of a receiver of OTLP over HTTP, without the path. Empty disables the export. Default: empty.
	Endpoint string `json:"endpoint"`
	// SamplingRatePerMillion is how many of a million changes are exported, as in kubelet and kube-apiserver. Default: 0.
	SamplingRatePerMillion int32 `json:"samplingRatePerMillion"`
	// SlowThreshold is the time from the receipt of a change until it is in the kernel, above which a change is always
	// exported, like those that the kernel rejects. Default: 1 s.
	SlowThreshold metav1.Duration `json:"slowThreshold"`
}

// check checks the fields.
func (t *TracingConfiguration) check(found *findings) {
	const p = sluicePrefix + "tracing."
	if t.Endpoint != "" {
		u, err := url.Parse(t.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			found.wrong(p+"endpoint", t.Endpoint, "a URL of a scheme and a host, like http://127.0.0.1:4318")
		}
	}
	if t.SamplingRatePerMillion < 0 || t.SamplingRatePerMillion > 1_000_000 {
		found.wrong(p+"samplingRatePerMillion", t.SamplingRatePerMillion, "0 to 1000000")
	}
	found.positive(p+"slowThreshold", t.SlowThreshold.Duration)
}

// InspectionConfiguration is about questions from other hosts; see docs/kubectl-sluice.md.
type InspectionConfiguration struct {
	// BindAddress is the IP address and port at which the proxy answers kubectl sluice, without authentication unless
	// security.inspection is set. Empty disables it. Default: empty.
	BindAddress string `json:"bindAddress"`
}
