// Computes packet filters with headscale's own policy engine, for each node of each file that is named. headscale-policies.ts
// builds it inside of a checkout of headscale. A line for each file: {"file", "filters"} by name of the node, or {"file", "error"}.
package main

import (
	"encoding/json"
	"net/netip"
	"os"

	policy "github.com/juanfont/headscale/hscontrol/policy/v2"
	"github.com/juanfont/headscale/hscontrol/types"
	"github.com/juanfont/headscale/hscontrol/types/testcapture"
	"gorm.io/gorm"
	"tailscale.com/tailcfg"
)

type line struct {
	File    string                          `json:"file"`
	Error   string                          `json:"error,omitempty"`
	Filters map[string][]tailcfg.FilterRule `json:"filters,omitempty"`
}

func address(text string) *netip.Addr {
	parsed := netip.MustParseAddr(text)
	return &parsed
}

func prefixes(texts []string) []netip.Prefix {
	found := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		found = append(found, netip.MustParsePrefix(text))
	}
	return found
}

func nodesOf(topology testcapture.Topology) (types.Users, types.Nodes) {
	var users types.Users
	for _, user := range topology.Users {
		users = append(users, types.User{Model: gorm.Model{ID: user.ID}, Name: user.Name, Email: user.Email})
	}
	var nodes types.Nodes
	for name, given := range topology.Nodes {
		node := &types.Node{
			ID:             types.NodeID(len(nodes) + 1),
			GivenName:      name,
			Hostname:       given.Hostname,
			IPv4:           address(given.IPv4),
			IPv6:           address(given.IPv6),
			Tags:           given.Tags,
			Hostinfo:       &tailcfg.Hostinfo{RoutableIPs: prefixes(given.RoutableIPs)},
			ApprovedRoutes: prefixes(given.ApprovedRoutes),
		}
		for i := range users {
			if len(given.Tags) == 0 && users[i].Name == given.User {
				node.User, node.UserID = &users[i], &users[i].ID
			}
		}
		nodes = append(nodes, node)
	}
	return users, nodes
}

func compute(file string) line {
	capture, err := testcapture.Read(file)
	if err != nil {
		return line{File: file, Error: err.Error()}
	}
	users, nodes := nodesOf(capture.Topology)
	manager, err := policy.NewPolicyManager([]byte(capture.Input.FullPolicy), users, nodes.ViewSlice())
	if err != nil {
		return line{File: file, Error: err.Error()}
	}
	filters := map[string][]tailcfg.FilterRule{}
	for _, node := range nodes {
		rules, err := manager.FilterForNode(node.View())
		if err != nil {
			return line{File: file, Error: err.Error()}
		}
		filters[node.GivenName] = rules
	}
	return line{File: file, Filters: filters}
}

func main() {
	encoder := json.NewEncoder(os.Stdout)
	for _, file := range os.Args[1:] {
		if err := encoder.Encode(compute(file)); err != nil {
			panic(err)
		}
	}
}
