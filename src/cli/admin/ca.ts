// `agent admin ca …` and `agent admin key rotate`: the organization's CAs, and the key that protects them at rest.

import { brand } from "../../brand.ts";
import { AppError } from "../../errors.ts";
import type { Authorities } from "../../server/rollout/rotation-commands.ts";
import { onData, onOrganization, onlyPlanned } from "./data.ts";
import type { Command } from "../command.ts";
import type { Values } from "../values.ts";
import { dataFlags, readDataOptions } from "../server-flags.ts";

const organization = { name: "ORG", description: "the organization's slug", required: true } as const;

export const show: Command = {
  name: "admin ca show",
  summary: "Show the CAs of an organization, and how far their rotation is",
  flags: dataFlags,
  words: [organization],
  examples: [`${brand.executable} admin ca show acme`],
  async run(context) {
    const { showAuthorities } = await import("../../server/rollout/rotation-commands.ts");
    const shown = await onOrganization(context, context.words[0] ?? "", ({ db, system }, org) =>
      showAuthorities(db, org, system.now()),
    );
    context.output.result(shown, text(shown));
  },
};

const actions = ["pause", "resume", "rollback"] as const;

export const rotate: Command = {
  name: "admin ca rotate",
  summary: "Replace the CAs of an organization while all tunnels stay up",
  notes: `A running \`${brand.executable} serve\` takes the rotation through its three phases (trust, issue, retire), each as soon as every
node that is online has confirmed the one before. The former CAs leave a minute after the last node has its new
certificate, so that tunnels can follow; lighthouses lose them last. Nodes that are off catch up when they come back.`,
  flags: {
    pause: { type: "boolean", description: "Stay in the present phase" },
    resume: { type: "boolean", description: "Go on" },
    rollback: { type: "boolean", description: "Go back to the former CAs, by the same steps" },
    now: { type: "boolean", description: "Do not wait for tunnels; also for a rotation that is under way" },
    ...dataFlags,
  },
  words: [organization],
  examples: [`${brand.executable} admin ca rotate acme`, `${brand.executable} admin ca rotate acme --pause`],
  async run(context) {
    const action = actionOf(context.values);
    const now = context.values.on("now");
    if (now && action === "pause") throw new AppError("usage", "--now does not go with --pause");
    if (now) context.output.say(risk);
    if (await onlyPlanned(context)) return;
    const { steerRotation } = await import("../../server/rollout/rotation-commands.ts");
    const { operator } = await import("../../server/audit/record.ts");
    const shown = await onOrganization(context, context.words[0] ?? "", (admin, org) =>
      steerRotation(admin, org, { action, now }, operator),
    );
    context.output.result(shown, text(shown));
  },
};

const risk =
  "--now takes the former CAs from all nodes without waiting for tunnels. Tunnels that still use a former CA are torn down and can lose packets for some seconds. Use it when a CA key may be known to others.";

function actionOf(values: Values): "start" | (typeof actions)[number] {
  const [action, ...more] = actions.filter((name) => values.on(name));
  if (more.length > 0)
    throw new AppError("usage", `Give one of ${actions.map((name) => `--${name}`).join(", ")}`);
  return action ?? "start";
}

function text({ cas, rotation, blocklist }: Authorities): string {
  const lines = cas.map(
    (ca) =>
      `${ca.kind}\t${ca.state}${ca.trusted ? "" : ", not trusted"}\tuntil ${ca.not_after}\t${ca.fingerprint}\n`,
  );
  const { phase, paused, auto, waiting_for_names: names, next_step_at: nextAt } = rotation;
  const nodes = names.length === 0 ? "" : `, waiting for ${names.join(", ")}`;
  const waiting = nextAt === null ? nodes : `, waiting for tunnels to follow until ${nextAt}`;
  const list = `blocklist: ${blocklist.entries} of at most ${blocklist.limit} entries\n`;
  return `${lines.join("")}rotation: ${phase}${paused ? ", paused" : ""}${waiting}${auto ? "" : " (begun by hand only)"}\n${list}`;
}

export const rotateKey: Command = {
  name: "admin key rotate",
  summary: "A new key for the secrets at rest",
  notes: `A running \`${brand.executable} serve\` follows. Killed in between, nothing is lost: run it again. With PostgreSQL the first run
puts the new key into the file; copy that to every replica, run it again, and copy it once more.`,
  flags: dataFlags,
  examples: [`${brand.executable} admin key rotate`],
  async run(context) {
    const { rotateSecretKey, formerKeyPath } = await import("../../server/backup/key-rotation.ts");
    const { secretKeyPath } = await import("../../server/store/secret-keys.ts");
    const options = await readDataOptions(context.values, context.system);
    const path = secretKeyPath(options, context.system);
    if (await onlyPlanned(context, [path, formerKeyPath(path)])) return;
    const done = await onData(context, (admin) =>
      rotateSecretKey(admin, path, options.databaseUrl !== undefined),
    );
    context.output.result(
      done,
      done.finished
        ? `Sealed ${done.resealed} secrets anew. The former key is in ${done.former_key_file ?? ""}: keep it with the backups that were made with it, else delete it.\n`
        : `${path} holds the new key beside the present one. Copy it to every replica, then run this again.\n`,
    );
  },
};
