/** What a person can do: requeue, cancel, resolve. Each says what it costs; only one spends. */

import { change, read } from "./api.js";
import { ask } from "./dialog.js";
import { count, money, price } from "./format.js";
import { t } from "./i18n.js";
import { problemText, say } from "./parts.js";

/**
 * Puts a delivery back in line. Nothing is bought, so a dead one needs no question; where the
 * destination may already have it, a second copy is possible and the person is told first.
 * @param {any} delivery
 * @returns {Promise<any>}  the delivery as the service answers it, or null when nothing was done
 */
export async function requeue(delivery) {
  let answer = null;
  const act = async () => {
    answer = (await change(`/api/v1/outbox/${encodeURIComponent(delivery.id)}/requeue`)) ?? {};
  };
  if (delivery.status === "outcome_unknown") {
    await ask({
      title: t("requeue.title"),
      lines: [t("requeue.maybeTwice", { publisher: delivery.publisher })],
      price: { label: t("price.gemini"), value: money(0), note: t("price.stored") },
      confirm: t("requeue.confirm"),
      act,
    });
  } else {
    await act();
  }
  if (answer) say(t("requeue.done"));
  return answer;
}

/**
 * Puts several deliveries back in line, one after another.
 * @param {any[]} deliveries
 * @returns {Promise<boolean>}
 */
export function requeueAll(deliveries) {
  return ask({
    title: t("requeueAll.title", { n: deliveries.length }),
    lines: [t("requeueAll.line")],
    price: { label: t("price.gemini"), value: money(0), note: t("price.stored") },
    confirm: t("requeueAll.confirm", { n: deliveries.length }),
    act: async () => {
      for (const delivery of deliveries) {
        await change(`/api/v1/outbox/${encodeURIComponent(delivery.id)}/requeue`);
      }
      say(t("requeue.done"));
    },
  });
}

/**
 * Gives a delivery up, for good unless it is requeued.
 * @param {any} delivery
 * @returns {Promise<any>}
 */
export async function cancel(delivery) {
  let answer = null;
  await ask({
    title: t("cancel.title"),
    lines: [t("cancel.line", { publisher: delivery.publisher, target: delivery.target })],
    price: { label: t("price.gemini"), value: money(0), note: t("price.stored") },
    confirm: t("cancel.confirm"),
    danger: true,
    act: async () => {
      answer = (await change(`/api/v1/outbox/${encodeURIComponent(delivery.id)}/cancel`)) ?? {};
      say(t("cancel.done"));
    },
  });
  return answer;
}

/** @typedef {{label: string, value: string, note: string, about?: string}} Cost */

/**
 * Decides over a held or unknown generation.
 * @param {any} generation
 * @param {"publish" | "regenerate" | "abandon"} action
 * @returns {Promise<any>}
 */
export async function resolve(generation, action) {
  /** @type {Cost} */
  const cost =
    action === "regenerate"
      ? await regeneratePrice(generation)
      : {
          label: t("price.gemini"),
          value: money(0),
          note: generation.cost?.microUsd
            ? t("price.paid", { money: price(generation.cost.microUsd) })
            : t("price.none"),
        };
  let answer = null;
  await ask({
    title: t(`resolve.${action}.title`),
    lines: [t(`resolve.${action}.${generation.state}`)],
    price: cost,
    confirm: cost.about
      ? t("resolve.regenerate.confirmAbout", { money: cost.about })
      : t(`resolve.${action}.confirm`),
    danger: action !== "publish",
    reason: true,
    act: async (reason) => {
      answer =
        (await change(`/api/v1/generations/${encodeURIComponent(generation.id)}/resolve`, {
          action,
          reason,
        })) ?? {};
      say(t(`resolve.${action}.done`));
    },
  });
  return answer;
}

/**
 * What buying again costs: the price of the usage that is stored, else what the pipeline's
 * generations cost on average, else a plain "not known".
 * @param {any} generation
 * @returns {Promise<Cost>}
 */
async function regeneratePrice(generation) {
  const label = t("price.again");
  const paid = generation.cost?.microUsd;
  if (typeof paid === "number" && paid > 0) {
    const usage = generation.usage ?? {};
    const about = price(paid);
    return {
      label,
      about,
      value: t("price.about", { money: about }),
      note: t("price.usage", {
        prompt: count(usage.promptTokens ?? 0),
        output: count((usage.outputTokens ?? 0) + (usage.thoughtTokens ?? 0)),
        model: generation.model ?? "",
      }),
    };
  }
  try {
    const usage = await read("/api/v1/usage", {
      group_by: "site,pipeline",
      account: generation.account,
    });
    const row = usage.items?.find(
      (/** @type {any} */ item) =>
        item.site === generation.site && item.pipeline === generation.pipeline,
    );
    if (row?.generations > 0) {
      const about = price(row.costMicroUsd / row.generations);
      return {
        label,
        about,
        value: t("price.about", { money: about }),
        note: t("price.average", { n: row.generations }),
      };
    }
  } catch {
    // The question is asked all the same, and says that the price isn't known.
  }
  return { label, value: t("price.unknown"), note: t("price.unknownNote") };
}

/**
 * Follows a delivery until it is no longer owed, or for a minute and a half: a drain runs every
 * minute.
 * @param {any} delivery
 * @param {(fresh: any) => void} seen
 * @param {AbortSignal} signal
 */
export async function follow(delivery, seen, signal) {
  if (!delivery.generationId) return;
  for (let attempt = 0; attempt < 24; attempt += 1) {
    await pause(attempt < 6 ? 1_500 : 5_000);
    if (signal.aborted) return;
    try {
      const generation = await read(
        `/api/v1/generations/${encodeURIComponent(delivery.generationId)}`,
        {},
        signal,
      );
      const fresh = generation.deliveries?.find((/** @type {any} */ one) => one.id === delivery.id);
      if (!fresh) return;
      seen({ ...delivery, ...fresh });
      if (!["pending", "waiting"].includes(fresh.status)) {
        say(t("follow.now", { state: t(`state.${fresh.status}`) }));
        return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (attempt > 3) return say(problemText(error));
    }
  }
}

/** @param {number} milliseconds */
function pause(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}
