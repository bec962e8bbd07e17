// The demo's control plane and the registration of its three nodes. Uses only the product's own commands and API.

import { apiPath } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import { tokenPairsApi } from "../../api/sessions.ts";
import { TokenPair } from "../../protocol/sign-in.ts";
import type { System } from "../../base/system.ts";
import type { Children } from "./children.ts";
import type { Network } from "./network.ts";

export const slug = "demo";
export const lighthouse = "lighthouse";
/** The node that stays until the end. */
export const stayingNode = "alpha";
/** The node that is deleted. */
export const deletedNode = "beta";
export const hosts = [lighthouse, stayingNode, deletedNode];

export type Stage = {
  directory: string;
  engine: string;
  network: Network;
  children: Children;
  system: System;
  /** Aborted when the demo ends, for whatever reason. */
  ended: AbortSignal;
  log: Log;
  say(text: string): void;
};

/** `address`: in the overlay. `root`: its configuration root. `registerMs`: how long the registration took. */
export type Registered = { name: string; id: number; address: string; root: string; registerMs: number };

/** `token`: the registration token. */
export type Plane = { url: string; token: string; deleteNode(id: number): Promise<void> };

/** Starts a control plane with a user, an organization and a registration token for three nodes. */
export async function startControlPlane({ directory, children, system, say }: Stage): Promise<Plane> {
  const data = join(directory, "control-plane");
  const from = performance.now();
  const url = await children.serve(data);
  const email = "demo@demo.example";
  const password = Buffer.from(system.random(24)).toString("base64url");
  const anything = v.unknown();
  const dataFlags = ["--data-dir", data];
  await children.agent(
    ["admin", "user", "create", email, "--password-file", "-", ...dataFlags],
    anything,
    password,
  );
  await children.agent(
    ["admin", "org", "create", slug, "--network", "10.77.0.0/16", "--owner", email, ...dataFlags],
    anything,
  );
  const { token } = await children.agent(
    ["admin", "token", "create", slug, "--uses", String(hosts.length), "--lighthouse", ...dataFlags],
    v.object({ token: v.string() }),
  );
  say(`started      a control plane at ${url}, with an organization and a token, in ${since(from)} ms`);
  const request = async (method: string, path: string, bearer?: string, body?: object) => {
    const headers = {
      "Content-Type": "application/json",
      ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }),
    };
    const answer = await system.fetch(url + path, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!answer.ok)
      throw new AppError("failed", `${method} ${path}: the control plane answered ${answer.status}`);
    return answer;
  };
  const signIn = await request("POST", tokenPairsApi.create.path, undefined, { email, password });
  const { access } = v.parse(TokenPair, await signIn.json());
  return {
    url,
    token,
    deleteNode: async (id) => void (await request("DELETE", apiPath(nodesApi.revoke, { slug, id }), access)),
  };
}

/** Registers one node, with its files below a directory of its own (`root`). */
export async function register(stage: Stage, host: string, url: string, token: string): Promise<Registered> {
  const root = join(stage.directory, host);
  mkdirSync(root, { mode: 0o700 });
  const underlay = stage.network.addresses[hosts.indexOf(host)] ?? "";
  const asLighthouse = host === lighthouse ? ["--is-lighthouse", "--public-ip", underlay] : [];
  const from = performance.now();
  const identity = ["--api-base", url, "--org-slug", slug, "--node-name", host];
  const place = ["--config-root", root, "--overlay-binary", stage.engine];
  const manner = ["--registration-token-file", "-", "--mode", "server", "--no-start"];
  const answer = await stage.children.agent(
    ["register", ...identity, ...place, ...manner, ...asLighthouse],
    v.object({ node_id: v.number(), ip_address: v.string() }),
    token,
  );
  return { name: host, id: answer.node_id, address: answer.ip_address, root, registerMs: since(from) };
}

/** Whole ms since this time of performance.now(). */
function since(from: number): number {
  return Math.round(performance.now() - from);
}
