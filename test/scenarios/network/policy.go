package network

import "context"

// SetPolicy gives a built-in chain of the node's table filter a policy, in both
// families. It belongs to the same programs as the proxy's rules: a packet that one
// variant accepts can still be dropped by the other.
func (w *World) SetPolicy(ctx context.Context, chain, policy string) error {
	suffix := ""
	if w.options.Variant != "" {
		suffix = "-" + w.options.Variant
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if _, err := w.Run(ctx, program+suffix, "-w", "-P", chain, policy); err != nil {
			return err
		}
	}
	return nil
}
