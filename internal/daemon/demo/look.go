package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/sluice-proxy/sluice/internal/daemon/lab"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// shownMax bounds the rules that the demo shows.
const shownMax = 5

// rule shows the rules of the sample Service as the kernel lists them.
func (r *run) rule(ctx context.Context) error {
	command := []string{"nft", "list", "table", "ip", "kube-proxy"}
	if variant, _, _ := strings.Cut(r.domains[0].Name, "/"); variant != "nftables" {
		command = []string{variant + "-save", "-t", "nat"}
	}
	listing, err := exec.CommandContext(ctx, command[0], command[1:]...).Output()
	if errors.Is(err, exec.ErrNotFound) {
		r.say("rules of %s: not shown, because %s is not installed", echo, command[0])
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	r.say("rules of %s on IPv4, as the kernel lists them (%s):", echo, strings.Join(command, " "))
	shown := rulesAbout(string(listing), echo.String())
	if len(shown) == 0 {
		return fmt.Errorf("%s: no rule of %s", strings.Join(command, " "), echo)
	}
	r.page.quote(shown)
	return nil
}

// rulesAbout returns the first rules and map elements with a Service in their comment.
func rulesAbout(listing, service string) (found []string) {
	for line := range strings.Lines(listing) {
		if strings.Contains(line, `"`+service+":") && len(found) < shownMax {
			line = strings.TrimPrefix(strings.TrimSpace(line), "elements = { ")
			found = append(found, strings.TrimRight(line, ", }"))
		}
	}
	return found
}

// explainOne shows what sluice explain answers about a connection of the client.
func (r *run) explainOne(p *proxy.Proxy) error {
	client := netip.AddrPortFrom(lab.ClientAddrs[service.IPv4], 40000)
	answer, err := r.explain(p, r.domains, client, targets[0].addr)
	if err != nil {
		return err
	}
	r.say("where would a connection end? sluice explain --from %s --to %s (in part):", client, targets[0].addr)
	r.page.quote(inPart(answer))
	return nil
}

// inPart returns the verdict of an explanation and its endpoints.
func inPart(answer string) (lines []string) {
	endpoints := false
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, " \n")
		endpoints = line != "" && (endpoints || strings.HasPrefix(line, "ENDPOINT"))
		if endpoints || strings.HasPrefix(line, "Service:") || strings.HasPrefix(line, "Verdict:") {
			lines = append(lines, line)
		}
	}
	return lines
}
