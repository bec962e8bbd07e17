// Which nodes may reach which others: the rules, their sum beside them, and the rule that decides.

import { policyApi } from "../../api/policy.ts";
import { effect } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { request, awaySince } from "../contact/api.ts";
import { Conflict, News } from "../access/conflict.tsx";
import { Explainer } from "../access/explainer.tsx";
import { failText, spaced } from "../access/class-words.ts";
import { draftOf, forgetSaved, type Draft } from "../access/draft-state.ts";
import { load, undoEvent } from "../access/draft.ts";
import { DraftPanel } from "../access/draft-panel.tsx";
import type { Saved } from "../access/saved.ts";
import { GroupList } from "../access/matrix/group-list.tsx";
import { GroupMatrix } from "../access/matrix/group-matrix.tsx";
import { RuleForm } from "../access/rule-form.tsx";
import { RuleList, rulesTerminal } from "../access/rule-list.tsx";
import { PolicyTests } from "../access/tests.tsx";
import { isLive, onEvent } from "../contact/live.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { Button, Words } from "../ui/button.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Why } from "../ui/page.tsx";
import { Failure, Loading, When } from "../ui/parts.tsx";
import { plural } from "../words/numbers.ts";

export function Access() {
  const draft = draftOf(currentSlug.value ?? "");
  useSaved(draft);
  const saved = draft.saved.value;
  const error = draft.error.value;
  const mayEdit = mayAdminister.value && saved?.policy.by_file === false && saved.policy.unconfirmed === null;
  /** The id of the event whose change of the rules becomes a draft; 0: none. */
  const eventToUndo = Number(query.value.get("undo") ?? 0);
  useEffect(() => {
    if (eventToUndo === 0 || !mayEdit) return;
    // Leave the address first: reading it again would undo on top of the draft.
    setQuery({ undo: undefined });
    void undoEvent(draft, eventToUndo);
  }, [draft, eventToUndo, mayEdit]);
  const edited = draft.rules.value;
  const tests = draft.tests.value;
  const terminal = useMemo(() => saved && rulesTerminal(draft, saved), [draft, saved, edited, tests]);
  if (saved === undefined)
    return (
      <Page title="Access">
        <Loading error={error} retry={() => void load(draft)} />
      </Page>
    );
  return (
    <Page
      title="Access"
      fact={factOf(saved)}
      terminal={terminal}
      actions={
        <>
          <span class="no-phone">
            <Button href={pathOf(draft.slug, "flows")}>Flows</Button>
            {mayAdminister.value ? <Button href={pathOf(draft.slug, "past")}>Past</Button> : null}
            <Button onClick={() => goTo("tests")}>Tests</Button>
          </span>
          <span class="only-phone">
            <Menu label="More on this page">
              <button type="button" onClick={() => goTo("explainer")}>
                May one node reach another?
              </button>
              <button type="button" onClick={() => goTo("tests")}>
                Tests
              </button>
            </Menu>
          </span>
          {mayEdit ? (
            <Button
              kind="primary"
              icon="plus"
              label="Add a rule"
              onClick={() => (draft.edited.value = "new")}
            >
              <Words first="Add" rest="a rule" />
            </Button>
          ) : null}
        </>
      }
    >
      <div class="stackd">
        <Notices draft={draft} saved={saved} />
        <div class="access">
          <div class="stackd">
            <RuleList draft={draft} saved={saved} mayEdit={mayEdit} />
            {edited === undefined ? <GroupList rules={saved.rules} /> : null}
            <PolicyTests draft={draft} saved={saved} mayEdit={mayEdit} />
          </div>
          <div class={saved.rules.length > maxInSight ? "stackd stays" : "stackd"}>
            <GroupMatrix saved={saved.rules} draft={edited} />
            <Explainer saved={saved} slug={draft.slug} isEdited={edited !== undefined} />
          </div>
        </div>
      </div>
      <DraftPanel draft={draft} saved={saved} />
      <Editor draft={draft} />
    </Page>
  );
}

/** By itself, so that the page is not drawn again when the dialog opens. */
function Editor({ draft }: { draft: Draft }) {
  const open = draft.edited.value;
  const close = () => (draft.edited.value = undefined);
  // When the page is left, the dialog closes.
  useEffect(() => close, [draft]);
  return open === undefined ? null : (
    <RuleForm rule={open === "new" ? undefined : open} draft={draft} close={close} />
  );
}

/** Beside more rules, the matrix stays when the page is scrolled. */
const maxInSight = 20;

/** "6 rules · 13 tests pass". */
function factOf({ rules, policy: { tests } }: Saved): string {
  const { failing, count } = tests;
  let said = count === 1 ? "1 test passes" : `${count} tests pass`;
  if (failing.length > 0) said = failText(failing.length, count).toLowerCase();
  if (count === 0) said = "no tests";
  return `${plural(rules.length, "rule")} · ${said}`;
}

/** Scrolls to a part of the page, and focuses its first field. */
function goTo(id: string): void {
  const part = document.getElementById(id);
  part?.scrollIntoView();
  part?.querySelector<HTMLElement>("input, button")?.focus({ preventScroll: true });
}

/** Reads the rules as they are saved, again when something may have changed them. */
function useSaved(draft: Draft): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isFirst = true;
    // The stream has no events from before it was open, nor from while the control plane was away.
    const end = effect(() => {
      const isBack = isLive.value && awaySince.value === undefined;
      if (isBack || isFirst) void load(draft);
      isFirst = false;
    });
    const leave = onEvent(({ type }) => {
      if (!/^(rule|policy|group|node)\./.test(type)) return;
      clearTimeout(timer);
      timer = setTimeout(() => void load(draft), 300);
    });
    return () => {
      clearTimeout(timer);
      end();
      leave();
      forgetSaved(draft);
    };
  }, [draft]);
}

type NoticesProps = { draft: Draft; saved: Saved };

/** What needs a look before the rules: why they cannot be edited here, tests that fail, and what others did. */
function Notices({ draft, saved }: NoticesProps) {
  const { policy } = saved;
  const { tests } = policy;
  const { rules, theirs, news, undoNotes, error } = draft;
  return (
    <>
      {policy.by_file ? (
        <Why kind="info" icon="access" title="These rules are changed by their policy file only:">
          <p>
            <code>agent admin policy apply {draft.slug} FILE</code>
          </p>
        </Why>
      ) : null}
      {mayAdminister.value ? null : (
        <p class="quiet">Administrators of the organization change rules. You can read them.</p>
      )}
      {policy.unconfirmed === null ? null : <Unconfirmed draft={draft} unconfirmed={policy.unconfirmed} />}
      {tests.failing.length === 0 ? null : (
        <div role="alert">
          <Why title={`${failText(tests.failing.length, tests.count)} with the saved rules:`}>
            <ul>
              {tests.failing.map((line) => (
                <li key={line}>
                  <bdi>{spaced(line)}</bdi>
                </li>
              ))}
            </ul>
          </Why>
        </div>
      )}
      {theirs.value === undefined ? null : <Conflict draft={draft} saved={saved} theirs={theirs.value} />}
      <Undoing sentences={undoNotes.value} />
      <News slug={draft.slug} changes={news.value} />
      {/* A save that failed has kept its edits; without edits, only reading can have failed. */}
      {rules.value !== undefined || error.value === undefined ? null : <Failure error={error.value} />}
    </>
  );
}

function Undoing({ sentences }: { sentences: readonly string[] }) {
  useEffect(() => {
    if (sentences.length > 0)
      document.querySelector(".rule > :is(.new, .changed, .deleted)")?.scrollIntoView({ block: "nearest" });
  }, [sentences]);
  const [first, ...more] = sentences;
  return (
    <div role="status">
      {first === undefined ? null : (
        <Why kind="info" icon="access" title={<bdi>{first}</bdi>}>
          {more.map((sentence) => (
            <p key={sentence}>
              <bdi>{sentence}</bdi>
            </p>
          ))}
        </Why>
      )}
    </div>
  );
}

type UnconfirmedProps = { draft: Draft; unconfirmed: NonNullable<Saved["policy"]["unconfirmed"]> };

function Unconfirmed({ draft, unconfirmed }: UnconfirmedProps) {
  const [asked, setAsked] = useState<"confirm" | "revert">();
  const endpoint = asked === "revert" ? policyApi.revert : policyApi.confirm;
  return (
    <div role="status">
      <Why
        title={
          <>
            <bdi>{unconfirmed.by}</bdi> has applied a policy that goes back <When at={unconfirmed.until} />{" "}
            unless it is confirmed.
          </>
        }
        actions={
          mayAdminister.value ? (
            <>
              <Button kind="tint" onClick={() => setAsked("confirm")}>
                Keep it
              </Button>
              <Button onClick={() => setAsked("revert")}>Take it back</Button>
            </>
          ) : undefined
        }
      >
        <p>Until then, the rules stay as they are.</p>
      </Why>
      {asked === undefined ? null : (
        <Confirm
          title={asked === "confirm" ? "Keep this policy?" : "Take this policy back?"}
          action={asked === "confirm" ? "Keep the policy" : "Take the policy back"}
          isDanger={false}
          effect={
            asked === "confirm"
              ? "It stays, and the rules can be edited again."
              : "The policy before it is in force within seconds."
          }
          sends={request(endpoint, { slug: draft.slug })}
          run={() => load(draft)}
          close={() => setAsked(undefined)}
          command={["policy", asked, draft.slug]}
        />
      )}
    </div>
  );
}
