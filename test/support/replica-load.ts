// The load of an organization on several servers behind one address: machines that register and check in, and an
// administrator who renames and revokes. Remembers everything that was acknowledged.

import * as v from "valibot";
import { paths } from "./paths.ts";
import { RegisterAnswer } from "../../src/protocol/registration.ts";
import { registration } from "../bench/registration.ts";
import { slug } from "../bench/seed.ts";

export type Acknowledged = {
  /** Nodes by id. */
  registered: Map<number, { name: string; ip: string; token: string }>;
  /** The last acknowledged name. */
  renamed: Map<number, string>;
  revoked: Set<number>;
};

export type Credentials = { admin: string; registration: string };

const Checkin = v.object({ config_version: v.number() });

export function makeLoad(url: string, { admin, registration: token }: Credentials, signal: AbortSignal) {
  const done: Acknowledged = { registered: new Map(), renamed: new Map(), revoked: new Set() };
  /** Answers that are neither a success nor a request to try again. */
  const faults: string[] = [];

  /** Repeats until there is an answer that is final. Undefined if none came before the end. */
  const send = async (
    method: string,
    path: string,
    credential: string | undefined,
    body?: unknown,
    wait = 0,
  ) => {
    while (!signal.aborted) {
      const answer = await fetch(url + path, {
        method,
        headers: {
          ...(credential === undefined ? {} : { Authorization: `Bearer ${credential}` }),
          "Content-Type": "application/json",
          ...(wait === 0 ? {} : { Prefer: `wait=${wait}` }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        keepalive: false,
        signal,
      }).catch(() => undefined);
      if (answer !== undefined && answer.status < 500) return answer;
      await Bun.sleep(100);
    }
    return undefined;
  };

  /** Registers machine after machine; renames every second and revokes every third of them. */
  const administer = async (worker: string) => {
    for (let at = 0; !signal.aborted; at++) {
      const name = `${worker}-${at}`;
      const answer = await send("POST", paths.register(slug), undefined, registration(name, token));
      if (answer === undefined) return;
      if (answer.status !== 201) {
        faults.push(`registration of ${name}: ${answer.status} ${await answer.text()}`);
        continue;
      }
      const { node, api_token } = v.parse(RegisterAnswer, await answer.json());
      done.registered.set(node.id, { name, ip: node.ip_address, token: api_token });
      const seen = await send("POST", paths.checkin(slug, node.id), api_token, report(1));
      if (seen !== undefined && seen.status !== 200) faults.push(`check-in of ${name}: ${seen.status}`);
      if (at % 2 === 1) await rename(node.id, `${name}-renamed`);
      if (at % 3 === 2) await revoke(node.id);
    }
  };

  const rename = async (id: number, name: string) => {
    const answer = await send("PATCH", paths.node(slug, id), admin, { name });
    if (answer?.status === 200) done.renamed.set(id, name);
    else if (answer !== undefined) faults.push(`rename of ${id}: ${answer.status} ${await answer.text()}`);
  };

  const revoke = async (id: number) => {
    const answer = await send("DELETE", paths.node(slug, id), admin);
    // 404: a request without an answer had revoked it.
    if (answer?.status === 204 || answer?.status === 404) done.revoked.add(id);
    else if (answer !== undefined)
      faults.push(`revocation of ${id}: ${answer.status} ${await answer.text()}`);
  };

  /** A node that holds a poll all the time, and confirms what it gets. `newest` is the version that it has. */
  const witness = async (id: number, credential: string, newest: Map<number, number>) => {
    let version = 0;
    while (!signal.aborted) {
      const answer = await send("POST", paths.checkin(slug, id), credential, report(version), 55);
      if (answer?.status === 200) version = v.parse(Checkin, await answer.json()).config_version;
      else if (answer !== undefined) faults.push(`poll of ${id}: ${answer.status}`);
      newest.set(id, version);
    }
  };
  return { done, faults, send, administer, witness };
}

function report(version: number) {
  return { version: "0.1.0", uptime: 1, config_version: version, confirmed_config_version: version };
}
