// One machine's configuration beside the newest one, and its present firewall.

import { type Rule as StoredRule, rulesApi } from "../../api/rules.ts";
import { nodesApi } from "../../api/nodes.ts";
import { apiPath, type Path, type SentOf } from "../../api/endpoint.ts";
import { useEffect, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { Sentence } from "../access/sentence.tsx";
import { namesOf, toRule, type Rule } from "../access/rules.ts";
import { namedIn, standingChange, standingOf } from "../access/standing.ts";
import { ApiError, get } from "../api.ts";
import { slug } from "../me.ts";
import { emailsOf, membersPath } from "../member-names.ts";
import { readNamed } from "../named-nodes.ts";
import { behindWords } from "../nodes.ts";
import { providerGroupsPath, wordsOf } from "../provider-words.ts";
import { useList, useResource } from "../resource.ts";
import { pathOf } from "../router.ts";
import { now } from "../times.ts";
import { Failure, FromTerminal, Line, Loading } from "../ui/parts.tsx";

type Changes = SentOf<typeof nodesApi.diff>;

export function Configuration({ node }: { node: Node }) {
  const own = slug.value ?? "";
  const path = apiPath(nodesApi.diff, { slug: own, id: node.id });
  const { data, error } = useChanges(path, node);
  // A machine that has not registered has no configuration yet.
  if (error !== undefined && error.status === 409) return null;
  return (
    <>
      <h2 id="configuration">Configuration</h2>
      {error === undefined ? null : <Failure error={error} />}
      {data === undefined ? null : <Difference node={node} found={data} />}
      <FromTerminal command={["diff", own, node.name]} call={["GET", path]} />
    </>
  );
}

function Difference({ node, found }: { node: Node; found: Changes }) {
  const { is_known, applied_config_version: applied, config_version: newest, changes } = found;
  if (applied !== null && applied >= newest) return <p>It has applied the newest configuration, {newest}.</p>;
  const { words, isFault } = behindWords(node, {
    isSent: found.not_applied_since !== null,
    now: now.value,
  });
  const has = (
    <>
      <p class={isFault ? "limited" : ""}>{words}</p>
      {isFault ? <Catching /> : null}
    </>
  );
  if (!is_known)
    return (
      <>
        {has}
        <p>The control plane does not know which files it has, so it cannot compare them.</p>
        <Newest node={node} />
      </>
    );
  if (changes.length === 0)
    return (
      <>
        {has}
        <p>Its files stay the same.</p>
      </>
    );
  return (
    <>
      {has}
      <p>The newest changes this:</p>
      {changes.map(({ file, diff }) => (
        <section key={file}>
          <h3>{file}</h3>
          {diff === null ? (
            <p class="quiet">It changes. It is too long to be compared.</p>
          ) : (
            <Unified text={diff} />
          )}
        </section>
      ))}
    </>
  );
}

/** What to do on a machine that lacks a configuration. */
export function Catching() {
  return (
    <>
      <p>On the machine, the first shows what the newest changes, the second applies it or says why not:</p>
      <Line text="sudo agent sync-config --dry-run" />
      <Line text="sudo agent sync-config" />
    </>
  );
}

/** Read again after the machine, not beside it: it is refused for a machine that was just revoked. */
function useChanges(path: Path<Changes>, node: Node) {
  const [found, set] = useState<{ data?: Changes; error?: ApiError }>({});
  useEffect(() => {
    const over = new AbortController();
    get(path, over.signal).then(
      (data) => over.signal.aborted || set({ data }),
      (error: unknown) => {
        if (over.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        set({ error });
      },
    );
    return () => over.abort();
  }, [path, node]);
  return found;
}

/** The newest configuration, read when it is asked for. */
function Newest({ node }: { node: Node }) {
  const [isOpen, open] = useState(false);
  const path = apiPath(nodesApi.config, { slug: slug.value ?? "", id: node.id });
  const { data, error } = useResource(isOpen ? path : "");
  return (
    <details onToggle={({ target }: Event) => open(target instanceof HTMLDetailsElement && target.open)}>
      <summary>The newest configuration, config.yml</summary>
      {error === undefined ? null : <Failure error={error} />}
      {data === undefined ? null : (
        <pre class="diff" tabindex={0}>
          {data.config_yml}
        </pre>
      )}
    </details>
  );
}

/** A unified diff. Removed and added lines have a sign, too. */
function Unified({ text }: { text: string }) {
  return (
    <pre class="diff" tabindex={0}>
      {text.split("\n").map((line) => {
        if (/^-(?!-- )/.test(line))
          return (
            <del>
              {line}
              {"\n"}
            </del>
          );
        return /^\+(?!\+\+ )/.test(line) ? (
          <ins>
            {line}
            {"\n"}
          </ins>
        ) : (
          <span>
            {line}
            {"\n"}
          </span>
        );
      })}
    </pre>
  );
}

const rulesPath = (own: string) => apiPath(rulesApi.list, { slug: own }, { page_size: "1000" });

export function Firewall({ node }: { node: Node }) {
  const own = slug.value ?? "";
  const { data: rules, error } = useList(rulesPath(own));
  const { letsIn, letIn, letsOut } = standingOf(rules ?? [], node);
  const words = useWords(own, rules, [...letsIn, ...letIn, ...letsOut]);
  if (node.state === "revoked")
    return (
      <>
        <h2>Firewall</h2>
        <p class="quiet">
          It is revoked: the rules are not about it. Machines that have confirmed that refuse it.
        </p>
      </>
    );
  if (words === undefined)
    return error === undefined ? (
      <>
        <h2>Firewall</h2>
        <Loading />
      </>
    ) : (
      <Failure error={error} />
    );
  const part = (title: string, listed: readonly StoredRule[], empty: string) => (
    <section>
      <h3>{title}</h3>
      {listed.length === 0 ? (
        <p class="quiet">{empty}</p>
      ) : (
        <ul class="plain-list">
          {listed.map((rule) => (
            <li key={rule.id}>
              <Sentence rule={words(rule)} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
  return (
    <>
      <h2>Firewall</h2>
      {part(
        `What may reach it${node.subnets.length === 0 ? "" : ` and ${node.subnets.join(", ")}`}`,
        letsIn,
        "Nothing may reach it.",
      )}
      {part("What it may reach", letIn, "No machine lets it in.")}
      {part("What it may send", letsOut, "It may send nothing.")}
      <p class="quiet">
        A connection needs both: the sender may send, and the receiver lets in.{" "}
        <a href={`${pathOf(own, "access")}?from=${encodeURIComponent(node.name)}`}>
          May it reach another machine?
        </a>
      </p>
    </>
  );
}

/**
 * `listed` in words; undefined until all names are known: a machine without its name would be called deleted. `read`:
 * the rules that they are of; names are read again with them.
 */
function useWords(
  own: string,
  read: readonly StoredRule[] | undefined,
  listed: readonly StoredRule[],
): ((rule: StoredRule) => Rule) | undefined {
  const ids = namedIn(listed);
  const [known, know] = useState({ ids, names: namesOf([]) });
  useEffect(() => {
    let isOver = false;
    readNamed(own, ids).then(
      (nodes) => isOver || know({ ids, names: namesOf(nodes) }),
      // The rules are read again within 20 seconds.
      () => undefined,
    );
    return () => void (isOver = true);
  }, [own, read, ids.join()]);
  const { data: members } = useList(membersPath(own));
  const { data: groups } = useList(providerGroupsPath(own));
  const isWhole = ids.every((id) => known.ids.includes(id));
  if (read === undefined || members === undefined || groups === undefined || !isWhole) return undefined;
  const [emails, ofProviders] = [emailsOf(members), wordsOf(groups)];
  return (rule) => toRule(rule, known.names, emails, ofProviders);
}

type EffectsProps = { node: Node; groups: readonly string[]; subnets: readonly string[] };

/** Before a machine's groups and networks are saved: the rules that begin and cease to be about it. */
export function Effects({ node, groups, subnets }: EffectsProps) {
  const own = slug.value ?? "";
  const { data: rules, error } = useList(rulesPath(own));
  const after = { ...node, groups: [...groups], subnets: [...subnets] };
  const { gains, loses } = standingChange(rules ?? [], node, after);
  // What reaches a machine reaches the networks behind it.
  const opened = subnets.filter((network) => !node.subnets.includes(network));
  const opening = opened.length === 0 ? [] : standingOf(rules ?? [], after).letsIn;
  const closed = node.subnets.filter((network) => !subnets.includes(network));
  const closing = closed.length === 0 ? [] : standingOf(rules ?? [], node).letsIn;
  const changed = [gains, loses].flatMap(({ others, it }) => [...others, ...it]);
  const words = useWords(own, rules, [...changed, ...opening, ...closing]);
  const isChanged = [groups.join(), subnets.join()].join(" ") !== [node.groups, node.subnets].join(" ");
  if (error !== undefined) return <Failure error={error} />;
  const listed = (title: string, found: readonly StoredRule[], As: "ins" | "del") =>
    found.length === 0 || words === undefined ? null : (
      <>
        <p>{title}</p>
        <ul class="plain-list effects">
          {found.map((rule) => (
            <li key={rule.id}>
              <As>
                {As === "ins" ? "+" : "−"} <Sentence rule={words(rule)} />
              </As>
            </li>
          ))}
        </ul>
      </>
    );
  return (
    <div aria-live="polite">
      {isChanged && rules !== undefined && changed.length + opening.length + closing.length === 0 ? (
        <p class="quiet">No rule begins or ceases to be about it.</p>
      ) : null}
      {listed(`These rules will let others reach ${opened.join(", ")}, too:`, opening, "ins")}
      {listed(`These rules will no longer let others reach ${closed.join(", ")}:`, closing, "del")}
      {listed("Others will reach it by these rules, too:", gains.others, "ins")}
      {listed("It will reach others by these, too:", gains.it, "ins")}
      {listed("Others will no longer reach it by these:", loses.others, "del")}
      {listed("It will no longer reach others by these:", loses.it, "del")}
    </div>
  );
}
