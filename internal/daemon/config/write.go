package config

import (
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Text gives the configuration as a file. Loading it gives the same configuration
// again, but for the flags of Control. Kube-proxy reads the first document of it,
// and leaves the second alone.
func (c *Config) Text() ([]byte, error) {
	first, err := yaml.Marshal(c.document())
	if err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	second, err := yaml.Marshal(&c.Sluice)
	if err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return append(append(first, "---\n"...), second...), nil
}

// WriteFile writes the configuration to a file, for --write-config-to.
func (c *Config) WriteFile(path string) error {
	text, err := c.Text()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("--write-config-to: %w", err)
	}
	return nil
}

// document gives kube-proxy's document as a file has to say it: a minSyncPeriod
// that nobody has named is 0, which stands for the default. With the default in
// its place it would be named when the file is loaded.
func (c *Config) document() *v1alpha1.KubeProxyConfiguration {
	k := c.KubeProxy.DeepCopy()
	active := periodsOf(k).minSync
	for _, p := range []*metav1.Duration{&k.IPTables.MinSyncPeriod, &k.NFTables.MinSyncPeriod, &k.IPVS.MinSyncPeriod} {
		unnamed := p == active && !c.minSyncNamed
		if unnamed || (p != active && p.Duration == minSyncDefault) {
			p.Duration = 0
		}
	}
	return k
}
