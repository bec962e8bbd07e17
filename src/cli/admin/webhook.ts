// `agent admin webhook …`: URLs that get the events of an organization.

import { request } from "../../api/request.ts";
import { webhooksApi, webhookSettings } from "../../api/webhooks/webhooks.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Context, Implementation } from "../command.ts";
import { orgArg } from "../server/server-flags.ts";
import type { Mark } from "../table.ts";
import { wordArg } from "../values.ts";
import { read, write, type Api } from "./api.ts";
import { checked, idOf, isNumber } from "./lookup.ts";
import { readChanges, readSettings, settingFlags } from "./setting-flags.ts";
import { chooseTarget } from "./target.ts";

/** The URL of a new webhook is a word, not a flag. */
const { url: _, ...settingsOfNew } = webhookSettings;
/** Marks for states of a delivery; all other states are good. */
const marks: ReadonlyMap<string, Mark> = new Map([
  ["failed", "bad"],
  ["waiting", "wait"],
]);
const webhookArg = { ID: wordArg("The webhook's number or URL") };
const webhooksOf = (api: Api, slug: string) => api.all(webhooksApi.list, { slug });
const paramsOf = async (api: Api, slug: string, word: string) => ({
  slug,
  id: await idOf(word, {
    what: "webhook",
    listing: `webhook list ${quoteWord(slug)}`,
    list: () => webhooksOf(api, slug),
    nameOf: ({ url }) => url,
  }),
});

export const list: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin webhook list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const webhooks = await read(context, (api) => webhooksOf(api, slug));
    context.output.list(
      { webhooks },
      {
        columns: ["ID", "URL", "FORMAT", "EVENTS", "QUIET HOURS"],
        rows: webhooks.map((each) => [
          each.id,
          each.url,
          each.format ?? "json",
          each.events.join(", "),
          each.quiet_hours ?? null,
        ]),
        none: `${slug} has no webhooks.`,
      },
    );
  },
};

export const create: Implementation = {
  notes:
    "For alarms, the URL is all that is needed: mailto:ADDRESS, syslogs://HOST, the webhook URL of Slack, Teams, Discord or\n" +
    "ntfy; of Mattermost, add --format mattermost. Other URLs get all events as JSON, signed with the secret, which is\n" +
    "printed once, as standardwebhooks.com describes.",
  args: {
    ...orgArg,
    URL: wordArg("The URL that gets the events"),
    ...settingFlags(settingsOfNew, { isNew: true }),
  },
  examples: [
    `${brand.executable} admin webhook create acme mailto:admin@example.org`,
    `${brand.executable} admin webhook create acme https://example.org/hook --event 'node.*'`,
  ],
  async run(context) {
    const [slug = "", url = ""] = context.words;
    const fields = { ...(await readSettings(context, settingsOfNew)), url };
    const body = await checked(webhooksApi.create.body, fields);
    const made = await write(context, () => request(webhooksApi.create, { slug }, body));
    if (made === undefined) return;
    const isSigned = (made.format ?? "json") === "json";
    const text = isSigned ? `. Secret:\n${made.secret}\n` : `: ${made.events.join(", ")} as ${made.format}\n`;
    context.output.result(made, `Created webhook ${made.id}${text}`);
    await warnIfRefused(context, url);
  },
};

/** Local data accepts every address, since only `serve` knows its --webhook-allow and --smtp-url: say what it may refuse later. */
async function warnIfRefused(context: Context, text: string): Promise<void> {
  if ((await chooseTarget(context)).kind !== "local") return;
  const url = new URL(text);
  if (url.protocol === "mailto:")
    return context.output.say("Unless the control plane has smtp-url in its settings, deliveries fail.");
  const { resolveTarget } = await import("../../server/webhooks/webhook-target.ts");
  try {
    await resolveTarget(url, { system: context.system });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    context.output.say(`Unless the control plane allows this network, deliveries fail: ${error.message}`);
  }
}

export const update: Implementation = {
  args: {
    ...orgArg,
    ...webhookArg,
    ...settingFlags(webhookSettings),
  },
  examples: [`${brand.executable} admin webhook update acme 3 --event '*'`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    const body = await checked(webhooksApi.update.body, await readChanges(context, webhookSettings));
    const changed = await write(context, async (api) =>
      request(webhooksApi.update, await paramsOf(api, slug, word), body),
    );
    if (changed === undefined) return;
    context.output.result(changed, `Updated webhook ${changed.id}\n`);
    if (body.url !== undefined) await warnIfRefused(context, body.url);
  },
};

export const remove: Implementation = {
  args: { ...orgArg, ...webhookArg },
  examples: [`${brand.executable} admin webhook delete acme 3`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    let id = 0;
    const gone = await write(context, async (api) => {
      const params = await paramsOf(api, slug, word);
      id = params.id;
      return { ...request(webhooksApi.delete, params), effect: `delete webhook ${id}` };
    });
    if (gone !== undefined) context.output.result({ id, deleted: true }, `Deleted webhook ${id}\n`);
  },
};

export const deliveries: Implementation = {
  args: { ...orgArg, ...webhookArg },
  examples: [`${brand.executable} admin webhook deliveries acme 3`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    const found = await read(context, async (api) =>
      api.all(webhooksApi.deliveries, await paramsOf(api, slug, word)),
    );
    context.output.list(
      { deliveries: found },
      {
        columns: ["ID", "EVENT", "STATE", "ATTEMPTS", "STATUS", "CREATED", "NEXT ATTEMPT", "MESSAGE"],
        rows: found.map((each) => [
          each.id,
          each.event_id,
          { text: each.state, mark: marks.get(each.state) ?? "good" },
          each.attempts,
          each.status,
          each.created_at,
          each.next_attempt_at,
          each.message,
        ]),
        none: "Nothing was delivered in the last 30 days.",
      },
    );
  },
};

export const sendAgain: Implementation = {
  notes: "Its Webhook-Id stays the same, so that a receiver which has it can discard it.",
  args: {
    ...orgArg,
    ...webhookArg,
    DELIVERY: wordArg("The delivery's number, as `deliveries` lists it"),
  },
  examples: [`${brand.executable} admin webhook send-again acme 3 41`],
  async run(context) {
    const [slug = "", word = "", delivery = ""] = context.words;
    const sent = await write(context, async (api) => {
      if (!isNumber(delivery)) throw new AppError("usage", `"${delivery}" is not a delivery's number.`);
      const params = { ...(await paramsOf(api, slug, word)), delivery: Number(delivery) };
      const effect = `send delivery ${delivery} of webhook ${params.id} again`;
      return { ...request(webhooksApi.sendAgain, params, {}), effect };
    });
    if (sent !== undefined) context.output.result(sent, `Delivery ${sent.id} is sent again\n`);
  },
};
