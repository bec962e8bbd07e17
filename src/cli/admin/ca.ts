// `agent admin ca …` and `agent admin key rotate`: the CAs of an organization, and the key that encrypts them.

import { authoritiesApi, rotationActions } from "../../api/certificates/authorities.ts";
import type { AnswerOf } from "../../api/endpoint.ts";
import { request } from "../../api/request.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { planReplaced } from "../../base/plan/plan-file.ts";
import { read, write } from "./api.ts";
import { onData, onlyPlanned } from "./data.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Context, Implementation } from "../command.ts";
import type { Cell } from "../table.ts";
import { switchFlag, type Values } from "../values.ts";
import { orgArg, readDataOptions } from "../server/server-flags.ts";

export const show: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin ca show acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const shown = await read(context, (api) => api.call(authoritiesApi.retrieve, { slug }));
    print(context, shown);
  },
};

export const rotate: Implementation = {
  notes: `A running \`${brand.executable} serve\` carries out the three phases of the rotation: trust, issue, retire. Each phase begins
when all nodes that are online have confirmed the phase before. The previous CAs leave one minute after the last node
has its new certificate, so that tunnels can follow; lighthouses lose them last. Offline nodes catch up when they return.`,
  args: {
    ...orgArg,
    pause: switchFlag("Stay in the current phase"),
    resume: switchFlag("Continue a paused rotation"),
    rollback: switchFlag("Return to the previous CAs, in the same phases"),
    limited: switchFlag("The new CA certifies only IPv4 addresses of the organization: beside an offline CA"),
    now: switchFlag("Do not wait for tunnels; also during a rotation"),
  },
  examples: [`${brand.executable} admin ca rotate acme`, `${brand.executable} admin ca rotate acme --pause`],
  async run(context) {
    const action = actionOf(context.values);
    const now = context.values.on("now");
    if (now && action === "pause") throw new AppError("usage", "--now does not go with --pause");
    const limited = context.values.on("limited");
    if (limited && action !== "start") throw new AppError("usage", `--limited does not go with --${action}`);
    if (now) context.output.say(riskOfNow);
    const [slug = ""] = context.words;
    const shown = await write(context, () =>
      request(authoritiesApi.rotate, { slug }, { action, now, ...(limited ? { limited } : {}) }),
    );
    if (shown === undefined) return;
    print(context, shown);
    if (action !== "pause") context.output.say(howToWatch(slug, { now }));
  },
};

const howToWatch = (slug: string, { now }: { now: boolean }) =>
  `${now ? "This takes some seconds, once all nodes that are online have confirmed each phase." : "This takes about two minutes; tunnels stay up."} To watch: \`${brand.executable} admin ca show ${quoteWord(slug)}\``;

const riskOfNow =
  "--now takes the former CAs from all nodes without waiting for tunnels. Tunnels that still use a former CA are torn down and can lose packets for some seconds. Use it when a CA key may be known to others.";

function actionOf(values: Values): "start" | (typeof rotationActions)[number] {
  const [action, ...more] = rotationActions.filter((name) => values.on(name));
  if (more.length > 0)
    throw new AppError("usage", `Give only one of ${rotationActions.map((name) => `--${name}`).join(", ")}`);
  return action ?? "start";
}

type Shown = AnswerOf<typeof authoritiesApi.retrieve>;

function stateOf({ trusted, offline, state }: Shown["cas"][number]): Cell {
  if (!trusted) return { text: `${state}, not trusted`, mark: "faint" };
  return offline ? "offline" : state;
}

/** At most this many nodes are named. `--json` has all. */
const mostNamed = 10;

function print({ output, system }: Context, shown: Shown): void {
  const { cas, rotation, blocklist } = shown;
  const rows = cas.map((ca): Cell[] => [
    ca.kind,
    stateOf(ca),
    Date.parse(ca.not_after) <= system.now()
      ? { text: `${ca.not_after}, expired`, mark: "bad" }
      : ca.not_after,
    ca.fingerprint,
  ]);
  const { phase, paused, auto, waiting_for_names: names, next_step_at: nextAt } = rotation;
  const signers = rotation.awaits_signers === true ? [`signers (${brand.executable} admin seal sign)`] : [];
  const unnamed = names.length > mostNamed ? [`${names.length - mostNamed} more nodes`] : [];
  const awaited = [...names.slice(0, mostNamed), ...unnamed, ...signers].join(", ");
  let waiting = awaited === "" ? "" : `, waiting for ${awaited}`;
  // All have confirmed: the next phase begins at this time.
  if (nextAt != null) waiting = `, waiting for tunnels to follow until ${nextAt}`;
  const blocklistLine =
    blocklist === undefined ? "" : `blocklist: ${blocklist.entries} of at most ${blocklist.limit} entries\n`;
  output.list(
    shown,
    { columns: ["CA", "STATE", "VALID UNTIL", "FINGERPRINT"], rows, none: "There are no CAs." },
    `\nrotation: ${phase}${paused ? ", paused" : ""}${waiting}${auto ? "" : " (starts only by hand)"}\n${blocklistLine}`,
  );
}

/** After a rotation on PostgreSQL. SQLite's file is rewritten. */
const remnants = `PostgreSQL still holds the old ciphertexts in dead rows and in its own log. If the old key may be known to others, run
\`VACUUM FULL authorities, organizations, webhooks, meta\`, and delete base backups and archived logs from before.
`;

export const rotateKey: Implementation = {
  notes: `A running \`${brand.executable} serve\` picks up the new key. After an interruption, run the command again: nothing is lost.
SQLite's file is rewritten, so that nothing encrypted with the old key stays in it; writes wait meanwhile.
With PostgreSQL, the first run only adds the new key to the file. Copy the file to every replica, run the command
again, and copy the file once more.`,
  examples: [`${brand.executable} admin key rotate`],
  async run(context) {
    const { rotateSecretKey, formerKeyPath } = await import("../../server/backup/key-rotation.ts");
    const { secretKeyPath } = await import("../../server/store/secret-keys.ts");
    const options = await readDataOptions(context.values, context.system);
    const path = secretKeyPath(options, context.system);
    const more = [path, formerKeyPath(path)].map((each) => planReplaced(each, 0o600));
    if (await onlyPlanned(context, { more })) return;
    const done = await onData(context, (admin) => rotateSecretKey(admin, path), { writes: true });
    context.output.result(
      done,
      done.finished
        ? `Encrypted ${done.resealed} secrets with the new key. The old key is in ${done.former_key_file ?? ""}: keep it with the backups that need it, or delete it.\n${options.databaseUrl === undefined ? "" : remnants}`
        : `${path} now holds the new key beside the current one. Copy it to every replica, then run this command again.\n`,
    );
  },
};
