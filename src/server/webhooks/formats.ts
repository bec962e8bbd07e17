// The bodies that receivers understand: chats want a text in a field of their own, and refuse what they do not know.

import { eventKinds, eventNouns, type Event } from "../../api/events.ts";
import type { WebhookFormat } from "../../api/webhooks/formats.ts";
import { quietSpan } from "../../api/webhooks/webhooks.ts";

/** A notification for receivers that show text. `id`: the same in retries. */
export type Told = { title: string; text: string; id: string };

/** Characters of one message: Discord takes 2000, and ntfy 4096 bytes. */
const maxLength = 1800;
const actors: Readonly<Record<string, string>> = {
  person: "A user",
  service: "A service token",
  node: "A node",
  operator: "The operator",
  server: "The control plane",
  nobody: "Somebody",
};

/** An event in words. Alarms have a title and a text; others the sentence of their type. */
export function toldOf({ type, subject, actor, before, after }: Event, org: string, id: string): Told {
  const [kind = "", rest = ""] = subject.split(/\/(.*)/s);
  const nameIn = (details: Event["after"]) =>
    typeof details?.["name"] === "string" ? details["name"] : undefined;
  const name = nameIn(after) ?? nameIn(before) ?? rest;
  const noun = (eventNouns as Readonly<Record<string, string>>)[kind] ?? kind;
  const words = (eventKinds as Readonly<Record<string, { words: string }>>)[type]?.words ?? `${type}: #`;
  const says: Readonly<Record<string, string>> = {
    "@": actors[actor.kind] ?? actor.kind,
    "#": name,
    "&": `the ${noun} ${name}`,
  };
  const isAlarm = kind === "alarm";
  const text = isAlarm && typeof after?.["text"] === "string" ? `\n${after["text"]}` : "";
  const sentence = isAlarm ? name : words.replaceAll(/[@#&]/g, (each) => says[each] ?? each);
  return {
    title: sentence.slice(0, 200),
    text: `${sentence}${text}\nOrganization ${org}, ${isAlarm && rest !== "test" ? `${kind} ${rest}, ` : ""}${id}`.slice(
      0,
      maxLength,
    ),
    id,
  };
}

type HttpFormat = Exclude<WebhookFormat, "mail" | "syslog" | "json">;

/** For chats that show Markdown. A text may hold a line of a node's log: no link may hide where it leads. */
const withoutLinks = (text: string) => text.replaceAll("](", "]\u200B(");

/** The request for a chat. */
export const chatRequests: Readonly<
  Record<HttpFormat, (url: URL, told: Told, urgent: boolean) => { url: URL; body: unknown }>
> = {
  // https://docs.slack.dev/messaging/formatting-message-text: these three characters are its markup.
  slack: (url, { text }) => ({
    url,
    body: { text: text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;") },
  }),
  // A mention such as @all would wake everybody.
  mattermost: (url, { text }) => ({ url, body: { text: withoutLinks(text).replaceAll("@", "@\u200B") } }),
  // Workflows of Teams take adaptive cards alone.
  teams: (url, { title, text }) => ({
    url,
    body: {
      type: "message",
      attachments: [
        {
          contentType: "application/vnd.microsoft.card.adaptive",
          contentUrl: null,
          content: {
            $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
            type: "AdaptiveCard",
            version: "1.4",
            body: [
              { type: "TextBlock", text: withoutLinks(title), weight: "Bolder", wrap: true },
              // Teams reads lines as Markdown, which needs an empty line for a line break.
              { type: "TextBlock", text: withoutLinks(text).split("\n").slice(1).join("\n\n"), wrap: true },
            ],
          },
        },
      ],
    },
  }),
  discord: (url, { text }) => ({
    url,
    body: { content: withoutLinks(text), allowed_mentions: { parse: [] } },
  }),
  // JSON goes to the root of the server, and names its topic.
  ntfy(url, { title, text }, urgent) {
    const [, before = "/", topic = ""] = /^(.*\/)([^/]*)\/?$/.exec(url.pathname) ?? [];
    const root = new URL(url);
    root.pathname = before;
    const message = text.split("\n").slice(1).join("\n");
    return {
      url: root,
      body: { topic: decodeURIComponent(topic), title, message, priority: urgent ? 5 : 3 },
    };
  },
};

export const isUrgentEvent = ({ after }: Pick<Event, "after">): boolean => after?.["urgent"] === true;

/** The end of the quiet hours, ms; undefined outside of them. */
export function quietUntil(hours: string | null, now: number): number | undefined {
  const span = hours === null ? undefined : quietSpan(hours);
  if (span === undefined) return undefined;
  const { from, to, zone } = span;
  const clock = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
  const minuteAt = (ms: number) => {
    const [hour = 0, minute = 0] = clock.format(ms).split(":").map(Number);
    return 60 * hour + minute;
  };
  const isQuiet = (at: number) => (from < to ? at >= from && at < to : at >= from || at < to);
  const at = minuteAt(now);
  if (!isQuiet(at)) return undefined;
  const begin = now - (now % minuteMs);
  const end = begin + ((to - at + 1440) % 1440) * minuteMs;
  if (minuteAt(end) === to) return end;
  // The zone's clock is set in between, perhaps over the end.
  let next = begin;
  while (isQuiet(minuteAt(next))) next += minuteMs;
  return next;
}

const minuteMs = 60_000;
