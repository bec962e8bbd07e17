// Every setting in a node's config.yml has a reason: the engine's own defaults stay in force otherwise.

import { describe, expect, test } from "bun:test";
import { readYaml } from "../../../src/node/files/config/read-yaml.ts";
import { makeConfigView, type ConfigNode } from "../../../src/server/config/config-view.ts";
import { isMap, type YamlMap } from "../../../src/base/yaml.ts";
import { plain, source, renderConfig } from "../../support/config-source.ts";

/**
 * Every setting that a node's config.yml has without overrides, with the reason why the engine's own default does not do.
 * `registered before`: only for nodes that earlier versions registered, because the engine applies it only at its start.
 */
const written: Record<string, string> = {
  "pki.ca": "the node's file",
  "pki.cert": "the node's file",
  "pki.key": "the node's file",
  "pki.disconnect_invalid": "engines below 1.8 keep the tunnel of a revoked peer without it",
  "pki.blocklist": "revocation",
  "pki.initiating_version": "the migration between certificate versions decides it",
  static_host_map: "where the lighthouses and relays are",
  "static_map.network": "follows from the families of the public addresses",
  "lighthouse.am_lighthouse": "the node's role",
  "lighthouse.hosts": "the lighthouses of the organization",
  "lighthouse.interval": "how soon a lighthouse that restarted knows all nodes again",
  "listen.host": "follows from the families of the public addresses",
  "listen.port": "fixed where peers must find the node",
  "punchy.punch": "keeps the mappings of NAT open; off by default",
  "punchy.respond": "lets a node behind NAT be reached; off by default",
  "punchy.respond_delay": "2s: with the engine's 5s, one that was asked about itself calls itself for ever",
  "relay.relays": "the relays of the organization",
  "relay.am_relay": "the node's role",
  "relay.use_relays": "nodes that cannot meet use relays",
  cipher: "must be the same on all nodes",
  "tun.dev": "names of interfaces must not collide",
  "tun.mtu": "must be the same on all nodes",
  "tun.unsafe_routes": "the subnets behind other nodes",
  "firewall.inbound_action": "deny by default",
  "firewall.outbound_action": "deny by default",
  "firewall.conntrack.tcp_timeout": "how long an address stays unused after its node left",
  "firewall.conntrack.udp_timeout": "how long an address stays unused after its node left",
  "firewall.conntrack.default_timeout":
    "how long an address stays unused after its node left; rechecks of flows",
  "firewall.inbound": "the rules of the organization",
  "firewall.outbound": "the rules of the organization",
  "timers.connection_alive_interval": "how soon the tunnel of a revoked peer ends",
  "logging.level": "the agent reads the log",
  "logging.format": "the agent reads the log",
  "sshd.enabled": "no shell of the engine",
  "tun.disabled": "registered before",
  "tun.drop_local_broadcast": "registered before",
  "tun.drop_multicast": "registered before",
  "tun.tx_queue": "registered before",
  "tun.routes": "registered before",
  "handshakes.try_interval": "registered before",
  "handshakes.retries": "registered before",
  "handshakes.trigger_buffer": "registered before",
  routines: "registered before",
};

function leaves(value: YamlMap, path = ""): string[] {
  return Object.entries(value).flatMap(([key, item]) => {
    const own = path === "" ? key : `${path}.${key}`;
    return own !== "static_host_map" && isMap(item) ? leaves(item, own) : [own];
  });
}

describe("the settings that are written", () => {
  const render = (engine: string, pinsDefaults: boolean, role: Partial<ConfigNode> = {}) => {
    const view = makeConfigView({ ...source, certificateVersion: "both" });
    const { text } = renderConfig(view, { ...plain, ...role, overlayVersion: engine, pinsDefaults });
    return leaves(readYaml(text, "it"));
  };
  const engines = ["1.6.1", "1.7.2", "1.8.2", "1.9.7", "1.10.3", "1.11.1", "1.12.0"];
  const roles: Partial<ConfigNode>[] = [
    {},
    { isLighthouse: true, publicIp: "2001:db8::1" },
    { isRelay: true },
  ];

  test("are listed with the reason", () => {
    const all = engines.flatMap((engine) =>
      roles.flatMap((role) => [true, false].flatMap((pins) => render(engine, pins, role))),
    );
    expect([...new Set(all)].sort()).toEqual(Object.keys(written).sort());
  });

  test("keep what applies only at a start for nodes registered before, so that no engine restarts", () => {
    const before = Object.keys(written).filter((key) => written[key] === "registered before");
    for (const engine of engines) {
      expect(render(engine, true)).toEqual(expect.arrayContaining(before));
      expect(render(engine, false).filter((key) => before.includes(key))).toEqual([]);
    }
  });
});
