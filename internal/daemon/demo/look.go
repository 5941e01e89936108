// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/sluice-proxy/sluice/internal/daemon/lab"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/service"
)

// shownMax bounds the rules that the demo shows.
const shownMax = 5

// rule shows the rules of the sample Service as the kernel lists them.
func (r *run) rule(ctx context.Context) error {
	command := []string{"nft", "list", "table", "ip", "kube-proxy"}
	if variant, _, _ := strings.Cut(r.domains[0], "/"); variant != "nftables" {
		command = []string{variant + "-save", "-t", "nat"}
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		r.say("rules of %s: not shown, because %s is not installed", echo, command[0])
		return nil
	}
	// nft may not find the table while the proxy makes other tables.
	listing, err := eventually(ctx, func(ctx context.Context) ([]byte, error) {
		return exec.CommandContext(ctx, command[0], command[1:]...).Output()
	})
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

// explain shows what sluice explain prints about a connection of the client.
func (r *run) explain(ctx context.Context) error {
	client := netip.AddrPortFrom(lab.ClientAddrs[service.IPv4], 40000)
	flow, err := explain.ParseFlow(client.String(), targets[0].addr.String(), "")
	if err != nil {
		return err
	}
	answer, err := r.client.Explain(ctx, flow)
	if err != nil {
		return err
	}
	var text terminal.Page
	answer.Print(&text)
	r.say("where would a connection end? sluice explain --from %s --to %s (in part):", client, targets[0].addr)
	r.page.quote(inPart(text.String()))
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
