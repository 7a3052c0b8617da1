// Chromium with its tabs: `node drive.js '{"chromium": PATH, "folder": ..., "flags": [...]}'`.
// Each line on standard input is a JSON object: "do" names an action and "tab" a tab; the answer is
// one line, {"value": ...} or {"failed": why}. The browser goes when standard input ends.
'use strict';

const readline = require('readline');
const puppeteer = require('puppeteer-core');

const given = JSON.parse(process.argv[2]);
const tabs = new Map();

// Puppeteer keeps tabs in the background as busy as the one in front; people's browsers do not.
const NOT_THROTTLED = [
    '--disable-background-timer-throttling',
    '--disable-backgrounding-occluded-windows',
    '--disable-renderer-backgrounding',
];

const actions = {
    async open(browser, { tab, url }) {
        const page = await browser.newPage();
        const mistakes = [];
        page.on('pageerror', (error) => mistakes.push(String(error)));
        tabs.set(tab, { page, mistakes });
        await page.goto(url);
        await page.waitForFunction('window.page !== undefined');
    },

    // Call a function of the page.
    run(browser, { tab, name, argument }) {
        const { page } = tabs.get(tab);
        return page.evaluate((one, what) => window.page[one](what), name, argument);
    },

    front(browser, { tab }) {
        return tabs.get(tab).page.bringToFront();
    },

    // "frozen": no timer of the page runs, and no event comes; "active" ends that.
    async lifecycle(browser, { tab, state }) {
        const session = await tabs.get(tab).page.createCDPSession();
        await session.send('Page.setWebLifecycleState', { state });
        await session.detach();
    },

    // Close a tab; the errors that its scripts did not catch.
    async close(browser, { tab }) {
        const { page, mistakes } = tabs.get(tab);
        tabs.delete(tab);
        await page.close();
        return mistakes;
    },
};

async function main() {
    const browser = await puppeteer.launch({
        executablePath: given.chromium,
        headless: true,
        pipe: true,
        userDataDir: given.folder,
        timeout: 60000,
        ignoreDefaultArgs: given.throttled ? NOT_THROTTLED : [],
        args: given.flags,
    });
    const answer = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
    answer({ value: await browser.version() });
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const wanted = JSON.parse(line);
        try {
            const value = await actions[wanted.do](browser, wanted);
            answer({ value: value === undefined ? null : value });
        } catch (error) {
            answer({ failed: `${wanted.do}: ${error.message}` });
        }
    }
    await browser.close();
}

main().catch((error) => {
    process.stdout.write(`${JSON.stringify({ failed: error.stack })}\n`);
    process.exit(1);
});
