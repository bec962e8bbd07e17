// The columns of the list of nodes that wait for approval.

import { currentSlug } from "../contact/me.ts";
import { keyOf, type Registration } from "./registrations.ts";
import { pathOf } from "../frame/router.ts";
import { nameOfKey } from "./token-words.ts";
import { Answers, type Verb } from "../ui/button.tsx";
import { Sign } from "../ui/icon.tsx";
import { textColumn } from "../ui/lists/list.tsx";
import { When } from "../ui/parts.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { Tag } from "../ui/tag.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";

export type Answer = { verb: Verb; machine: Registration };

export const twinWords = "Another node has this name, or asks for it: compare the key.";

/** Without a token and without an agent. */
export const isPhone = ({ registration_token_id, version }: Registration) =>
  registration_token_id === null && version === null;

/** Machines ask every 30 s at least, and the control plane records it once a minute: more than two such minutes. */
const silentMs = 180_000;
export const isSilent = ({ last_asked_at }: Registration, readAt: number) =>
  last_asked_at !== null && Date.parse(last_asked_at) < readAt - silentMs;
export const silenceOf = (each: Registration): string =>
  isPhone(each)
    ? "Its page is closed or asleep. A closed one has lost the key: refuse it."
    : "Its command does not run.";

const roles = ({ is_lighthouse, is_relay }: Registration): string[] => [
  ...(is_lighthouse ? ["lighthouse"] : []),
  ...(is_relay ? ["relay"] : []),
];

type Around = {
  /** Names that several have, waiting machines and nodes together. */
  twins: ReadonlySet<string>;
  /** Names of join keys by number. A key that was revoked meanwhile is not among them. */
  tokens: ReadonlyMap<number, string>;
  /** E-mail addresses of owners by number of the user. */
  owners: ReadonlyMap<number, string>;
  /** When the list was read, ms since 1970. */
  readAt: number;
  give(answer: Answer): void;
};

/** The columns of machines that wait for approval. */
export function columnsOf({ twins, tokens, owners, readAt, give }: Around): readonly Column<Registration>[] {
  const slug = currentSlug.value ?? "";
  const keyName = ({ registration_token_id: id }: Registration) =>
    id === null ? "" : (tokens.get(id) ?? nameOfKey({ id, name: null }));
  const ownerName = ({ owner_id: id }: Registration) => (id === null ? "" : (owners.get(id) ?? `user ${id}`));
  return [
    {
      ...textColumn<Registration>("name", "Name", 1.6, ({ name }) => name),
      cell: ({ name }) => (
        <>
          <bdi class="name" title={name}>
            {name}
          </bdi>
          {twins.has(name) ? (
            <span class="st is-bad" title={twinWords}>
              {" "}
              <Sign name="need" />
              <span class="unseen">{twinWords}</span>
            </span>
          ) : null}
        </>
      ),
    },
    {
      ...textColumn<Registration>("key", "Key", 2, ({ key_sha256 }) => key_sha256),
      cell: (each) => <code>{keyOf(each)}</code>,
    },
    {
      ...textColumn<Registration>("groups", "Groups", 1.5, ({ groups }) => groups.join(", ")),
      cell: (each) => (
        <span title={[...each.groups, ...roles(each)].join(", ")}>
          {each.groups.map((text) => Tag({ text }))}
          {roles(each).map((text) => Tag({ text, isAll: true }))}
        </span>
      ),
    },
    {
      ...textColumn<Registration>("by", "By", 1.6, (each) =>
        [ownerName(each), keyName(each)].filter(Boolean).join(", "),
      ),
      cell(each) {
        const [owner, key] = [ownerName(each), keyName(each)];
        return (
          <span title={[owner, key].filter(Boolean).join(", ")}>
            {owner === "" ? null : <bdi>{owner}</bdi>}
            {owner === "" || key === "" ? null : ", "}
            {key === "" ? null : (
              <a href={pathOf(slug, "tokens")}>
                <bdi>{key}</bdi>
              </a>
            )}
          </span>
        );
      },
    },
    {
      ...textColumn<Registration>("from", "From", 1.5, ({ seen_from }) => seen_from),
      cell: (each) => (
        <span class="mono" title={`${each.seen_from}, ${systemOf(each)}`}>
          {each.seen_from}
        </span>
      ),
    },
    {
      ...timeColumn<Registration>("asked", "Asked", ({ created_at }) => created_at, { width: 1.5 }),
      cell: (each) =>
        isSilent(each, readAt) ? (
          <span title={silenceOf(each)}>
            <span class="st is-bad">
              <Sign name="need" />
            </span>{" "}
            not since <When at={each.last_asked_at} />
            <span class="unseen">: {silenceOf(each)}</span>
          </span>
        ) : (
          <When at={each.created_at} />
        ),
      isNumber: true,
    },
    { ...timeColumn<Registration>("lapses", "Lapses", ({ expires_at }) => expires_at), isNumber: true },
    {
      key: "actions",
      title: "",
      width: 2.2,
      text: () => "",
      isNumber: true,
      cell: (machine) => <Answers name={machine.name} give={(verb) => give({ verb, machine })} />,
    },
  ];
}

/** The columns of a card, on a narrow screen. */
export const narrowColumns = (columns: readonly Column<Registration>[]) =>
  ["name", "asked", "key", "actions"].flatMap((key) => columns.find((each) => each.key === key) ?? []);

const systemOf = ({ platform, version }: Registration): string =>
  [platform, version].filter((each) => each !== null).join(", ") || "unknown system";
