// An organization with a lighthouse and a rule, and a plain node in it: what config.yml is rendered from.

import type {
  ConfigNode,
  ConfigSource,
  ConfigView,
  Hub,
  NodeKind,
} from "../../src/server/config/config-view.ts";
import { renderSlices } from "../../src/server/config/config.ts";
import { atOnce } from "../../src/server/http/heavy-work.ts";

export const plain: ConfigNode = {
  id: 5,
  name: "web",
  ip: "10.77.0.5",
  ip6: null,
  groups: ["123", "yes"],
  ownerId: null,
  ownerGroups: [],
  isLighthouse: false,
  isRelay: false,
  publicIp: null,
  externalPort: null,
  listenPort: null,
  subnets: [],
  routeOptions: {},
  exitGroups: [],
  configOverrides: {},
  overlayVersion: null,
  platform: "linux-x64",
  pinsDefaults: false,
};

export const lighthouse: Hub = {
  id: 1,
  ip: "10.77.0.1",
  isLighthouse: true,
  isRelay: true,
  publicIp: "203.0.113.9",
  externalPort: 4243,
  subnets: [],
  routeOptions: {},
};

export const source: ConfigSource = {
  slug: "acme",
  networks: ["10.77.0.0/16"],
  aliveInterval: null,
  overrides: {},
  certificateVersion: 1,
  rules: [
    {
      id: 1,
      direction: "inbound",
      protocol: "tcp",
      ports: "443",
      peer: { group: "123" },
      target: { any: true },
      description: "",
    },
  ],
  nodeNames: new Map(),
  hubs: [lighthouse],
  flowRechecks: 0,
  pausedRelays: [],
  blocklist: ["aa".repeat(32)],
};

/** Without pauses. */
export const renderConfig = (view: ConfigView, node: NodeKind) => atOnce(renderSlices(view, node));
