// The order board in Chromium: `node drive.js '{"chromium": PATH, "folder": PATH, "flags": [...]}'`.
//
// Each line on standard input is a JSON object whose "do" names an action; the answer is one line,
// {"value": ...} or {"failed": why}. The browser goes when standard input ends.
'use strict';

const readline = require('readline');
const puppeteer = require('puppeteer-core');

const given = JSON.parse(process.argv[2]);
const seen = { requests: [], mistakes: [] };
let page;

const actions = {
    async open(browser, { url, width = 1280, height = 900, dark = false, scale = 1 }) {
        page = await browser.newPage();
        page.on('request', (request) => seen.requests.push(request.url()));
        page.on('pageerror', (error) => seen.mistakes.push(String(error)));
        page.on('console', (message) => {
            // A connection that is refused while the gateway is away is told there as well.
            const away = /WebSocket connection to .* failed/.test(message.text());
            if (message.type() === 'error' && !away) seen.mistakes.push(message.text());
        });
        const network = await page.createCDPSession();
        await network.send('Network.enable');
        network.on('Network.webSocketCreated', ({ url: to }) => seen.requests.push(to));
        await look({ width, height, dark, scale });
        await page.evaluateOnNewDocument(() => {
            window.shifts = 0;
            new PerformanceObserver((list) => {
                for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts += one.value;
            }).observe({ type: 'layout-shift', buffered: true });
        });
        await page.goto(url);
    },
    look: (browser, wanted) => look(wanted),
    reload: () => page.reload(),
    click: (browser, { selector }) => page.click(selector),
    async fill(browser, { selector, text }) {
        await page.$eval(selector, (field) => { field.value = ''; });
        await page.type(selector, text);
    },
    select: (browser, { selector, text }) => page.select(selector, text),
    press: (browser, { key }) => page.keyboard.press(key),
    script: (browser, { text }) => page.evaluate(text),
    shot: async (browser, { path, whole = true }) => {
        await page.screenshot({ path, fullPage: whole });
    },
    seen: () => seen,
};

async function look({ width, height, dark, scale }) {
    await page.setViewport({ width, height, deviceScaleFactor: scale });
    await page.emulateMediaFeatures([
        { name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' },
    ]);
}

async function main() {
    const browser = await puppeteer.launch({
        executablePath: given.chromium,
        headless: true,
        pipe: true,
        userDataDir: given.folder,
        timeout: 60000,
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
