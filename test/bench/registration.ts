// `bun test/bench/registration.ts [ROUNDS] [SECONDS]`: registrations a second beside a bare program that does the same
// with the same libraries and commits (bar: 0.4 of it).

import { generateKeyPairSync, sign } from "node:crypto";
import { join } from "node:path";
import { hostPublicBanner } from "../../src/pki/keys.ts";
import { formatPem } from "../../src/pki/pem.ts";
import { paths } from "../support/paths.ts";
import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import {
  describeLoads,
  figure,
  inTurns,
  load,
  print,
  ratios,
  startFloor,
  startServer,
  writeRequests,
  type Request,
} from "./measure.ts";
import { seed, slug } from "./seed.ts";

/**
 * Requests of machines that register, each with keys of its own. `first` counts the machines over all files of one run: no name comes twice.
 */
export function* registrations(
  slug: string,
  token: string,
  first: number,
  count: number,
): Generator<Request> {
  for (let at = first; at < first + count; at++) {
    const name = `machine-${at}`;
    yield { method: "POST", path: paths.register(slug), body: registration(name, token) };
  }
}

export function registration(name: string, token: string) {
  return {
    name,
    host_public_key: formatPem(hostPublicBanner, crypto.getRandomValues(new Uint8Array(32))),
    node_csr: makeRequest(name),
    mode: "server",
    platform: "linux-x64",
    version: "0.1.0",
    overlay_version: "1.10.3",
    registration_token: token,
  };
}

/**
 * PKCS#10 (RFC 2986): the name as CN, a P-256 key, no attributes, ECDSA with SHA-256. Written as bytes, because a library would
 * need a millisecond for each of tens of thousands.
 */
function makeRequest(name: string): string {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const commonName = der(0x30, Buffer.from("0603550403", "hex"), der(0x0c, Buffer.from(name)));
  const information = der(
    0x30,
    Buffer.from("020100", "hex"),
    der(0x30, der(0x31, commonName)),
    publicKey.export({ format: "der", type: "spki" }),
    Buffer.from("a000", "hex"),
  );
  const signature = sign("sha256", information, privateKey);
  const algorithm = der(0x30, Buffer.from("06082a8648ce3d040302", "hex"));
  const request = der(0x30, information, algorithm, der(0x03, Buffer.from([0]), signature));
  return formatPem("CERTIFICATE REQUEST", request);
}

function der(tag: number, ...parts: Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const length =
    body.length < 128
      ? [body.length]
      : body.length < 256
        ? [0x81, body.length]
        : [0x82, body.length >> 8, body.length & 255];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

const marks = "marks: the Django original 19.6 a second, step-ca 1,164 leaf certificates a second";

if (import.meta.main) {
  const rounds = Number(process.argv[2] ?? 5);
  const seconds = Number(process.argv[3] ?? 3);
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  const { registration: token } = await seed({ dataDirectory: data }, 1000);
  await using floor = await startFloor("registration", [directory.path]);
  await using server = await startServer(["--data-dir", data]);
  // More than any machine can do, so that none is sent twice.
  const most = 1500 * seconds;
  let made = 0;
  const fresh = (withToken: string) => {
    const path = writeRequests(join(directory.path, "requests"), registrations(slug, withToken, made, most));
    made += most;
    return path;
  };
  const run = async (url: string, withToken: string) => {
    const done = await load(url, fresh(withToken), { seconds });
    if (done.requests > most) throw new Error("There were too few requests: the same were sent again");
    return done;
  };
  await run(floor.url, "floor");
  await run(server.url, token);
  const loads = await inTurns(rounds, {
    floor: () => run(floor.url, "floor"),
    server: () => run(server.url, token),
  });
  print(describeLoads("bare registration", loads.floor));
  print(describeLoads("registration", loads.server));
  figure("of the floor", ratios(loads.server, loads.floor), { digits: 2, least: 0.4 });
  print(marks);
}
