// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	nfttrace "github.com/sluice-proxy/sluice/dataplane/nftables/trace"
)

// nftTime bounds one run of nft.
const nftTime = 5 * time.Second

// nameCulprits sets the text of each rule that ended a path to what nft prints, if Sluice cannot print all expressions
// of the rule. Without nft, or if the rule changed meanwhile, the text names the command that shows the rule.
func nameCulprits(ctx context.Context, paths []Path, list func(ctx context.Context, table, chain string) string) {
	for i := range paths {
		by := paths[i].By
		if by == nil || by.Policy || by.Text != "" && !strings.HasPrefix(by.Text, nfttrace.Unprinted) {
			continue
		}
		text := ruleIn(list(ctx, by.Table, by.Chain), by.Handle)
		if text == "" {
			text = strings.TrimSpace(fmt.Sprintf("%s see: nft -a list chain %s %s", by.Text, by.Table, by.Chain))
		}
		by.Text = text
	}
}

// listChain returns a chain as nft prints it, with handles; "" if that fails.
func listChain(ctx context.Context, table, chain string) string {
	ctx, stop := context.WithTimeout(ctx, nftTime)
	defer stop()
	arguments := append([]string{"--handle", "list", "chain"}, strings.Fields(table)...)
	text, err := exec.CommandContext(ctx, "nft", append(arguments, chain)...).Output()
	if err != nil {
		return ""
	}
	return string(text)
}

// ruleIn returns the rule with a handle in a chain that nft printed. Sets in a rule may take several lines.
func ruleIn(chain string, handle uint64) string {
	end := fmt.Sprintf(" # handle %d", handle)
	rule := ""
	for line := range strings.Lines(chain) {
		line = strings.TrimSpace(line)
		rule = strings.TrimSpace(rule + " " + line)
		if text, is := strings.CutSuffix(rule, end); is {
			return text
		}
		if strings.Contains(line, " # handle ") || strings.HasSuffix(line, ";") || strings.HasPrefix(line, "chain ") {
			rule = ""
		}
	}
	return ""
}
