// `bun test/bench/certificates.ts [ROUNDS]`: prints how fast overlay certificates are signed and verified beside the
// bare Ed25519 of the runtime, measured in turns so that both meet the same machine (the bar is 0.6), and how long a
// configuration with a blocklist of 10,000 entries takes to render (the bar is 20 ms).

import { generateKeyPairSync, randomBytes, sign, verify } from "node:crypto";
import { makeConfigView, type ConfigNode } from "../../src/server/config/config-view.ts";
import { makeHostKey, readHostPublicKey } from "../../src/pki/keys.ts";
import { decodeBundle, encodePem } from "../../src/pki/bundle.ts";
import { makeCa, signCertificate, verifyCertificate } from "../../src/pki/nebula.ts";
import { renderConfig } from "../support/config-source.ts";
import { figure } from "./measure.ts";

const rounds = Number(process.argv[2] ?? 15);
const now = 1_800_000_000;

/** Calls per second over 200 ms. */
function rate(work: () => void): number {
  const start = performance.now();
  let calls = 0;
  for (; performance.now() - start < 200; calls += 20) for (let each = 0; each < 20; each++) work();
  return (calls / (performance.now() - start)) * 1000;
}

function measure(title: string, bare: () => void, whole: () => void): void {
  const runs = Array.from({ length: rounds }, () => {
    const [floor, ours] = [rate(bare), rate(whole)];
    return { floor, ours, ratio: ours / floor };
  });
  const all = (key: keyof (typeof runs)[number]) => runs.map((each) => each[key]);
  figure(`${title}, a second`, all("ours"), { digits: 0, floor: all("floor") });
  figure(`${title}, of the bare rate`, all("ratio"), { digits: 2, least: 0.6 });
}

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
const publicHalf = readHostPublicKey(makeHostKey().publicPem);
for (const version of [1, 2] as const) {
  const limits = { networks: ["10.77.0.0/16"], groups: ["servers", "laptops", "admins"] };
  const ca = makeCa({ version, name: "ca", ...limits, notBefore: now - 1e6, notAfter: now + 1e8 });
  const template = {
    version,
    name: "node-1",
    networks: ["10.77.0.5/16"],
    unsafeNetworks: [],
    groups: ["servers", "laptops"],
    notBefore: now,
    notAfter: now + 1e7,
    publicKey: publicHalf,
  };
  const certificate = signCertificate(template, ca);
  const pem = encodePem(certificate);
  const trusted = [ca.certificate];
  const signature = sign(null, certificate.details, privateKey);
  const bareVerify = () => void verify(null, certificate.details, publicKey, signature);
  measure(
    `version ${version}, sign`,
    () => void sign(null, certificate.details, privateKey),
    () => {
      signCertificate(template, ca);
    },
  );
  measure(`version ${version}, verify`, bareVerify, () => verifyCertificate(certificate, trusted, now));
  measure(`version ${version}, decode PEM and verify`, bareVerify, () => {
    for (const each of decodeBundle(pem)) verifyCertificate(each, trusted, now);
  });
}

const node: ConfigNode = {
  id: 1,
  name: "node-1",
  ip: "10.77.0.5",
  ip6: null,
  groups: ["servers"],
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
  overlayVersion: "1.11.0",
  platform: "linux-x64",
  pinsDefaults: false,
};
const source = {
  slug: "acme",
  networks: ["10.77.0.0/16"],
  aliveInterval: null,
  overrides: {},
  certificateVersion: 1 as const,
  rules: [],
  nodeNames: new Map<number, string>(),
  hubs: [],
  flowRechecks: 0,
  pausedRelays: [],
  blocklist: Array.from({ length: 10_000 }, () => randomBytes(32).toString("hex")),
};

function time(title: string, work: () => void): void {
  const times = Array.from({ length: 50 }, () => {
    const start = performance.now();
    work();
    return performance.now() - start;
  });
  figure(title, times, { unit: "ms", digits: 2, most: 20 });
}

time("10,000 blocked, the first node", () => void renderConfig(makeConfigView(source), node));
const view = makeConfigView(source);
time("10,000 blocked, each further node", () => void renderConfig(view, node));
