// Qpid JMS as a client of the gateway: `java ... Peer PORT`.
// Each line on standard input is `SCENARIO ADDRESS`; the answer is one line with a JSON value, or
// with {"failed": why}.

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;

public final class Peer {
    private static final long SECONDS = 10_000;
    private static final long NOTHING = 300;

    private final JmsConnectionFactory factory;

    private Peer(String url) {
        factory = new JmsConnectionFactory(url);
    }

    interface Scenario {
        Object play(String address) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(arguments[0]);
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Object seen;
            try {
                seen = peer.scenarios().get(words[0]).play(words[1]);
            } catch (Exception error) {
                seen = Map.of("failed", error.toString());
            }
            System.out.println(json(seen));
        }
    }

    private Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("transacted", this::transacted);
        all.put("answering", this::answering);
        all.put("full", this::full);
        all.put("closing", this::closing);
        all.put("large", this::large);
        all.put("selector", this::selector);
        all.put("browser", this::browser);
        all.put("priorities", this::priorities);
        all.put("delay", this::delay);
        all.put("expiry", this::expiry);
        all.put("durable", this::durable);
        all.put("shared", this::shared);
        all.put("groups", this::groups);
        all.put("bodies", this::bodies);
        all.put("headers", this::headers);
        all.put("request", this::request);
        all.put("recover", this::recover);
        all.put("listener", this::listener);
        all.put("login", this::login);
        all.put("permitted", this::permitted);
        return all;
    }

    // ---- what scenarios share

    private Connection connected() throws JMSException {
        Connection connection = factory.createConnection();
        connection.start();
        return connection;
    }

    private static Session plain(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private static Session inTransactions(Connection connection) throws JMSException {
        return connection.createSession(true, Session.SESSION_TRANSACTED);
    }

    private static void send(Session session, MessageProducer producer, int first, int count)
            throws JMSException {
        for (int number = first; number < first + count; number++) {
            TextMessage message = session.createTextMessage(Integer.toString(number));
            message.setIntProperty("number", number);
            message.setStringProperty("kind", number % 2 == 0 ? "even" : "odd");
            producer.send(message);
        }
    }

    private static String text(Message message) throws JMSException {
        return message == null ? null : ((TextMessage) message).getText();
    }

    private static List<String> take(MessageConsumer consumer, int count) throws JMSException {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            found.add(text(consumer.receive(SECONDS)));
        }
        return found;
    }

    private static int shown(Session session, Queue queue) throws JMSException {
        try (QueueBrowser browser = session.createBrowser(queue)) {
            return Collections.list(browser.getEnumeration()).size();
        }
    }

    // ---- transactions

    private Object transacted(String address) throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        try (Connection connection = connected()) {
            Session session = inTransactions(connection);
            Session other = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            send(session, producer, 0, 3);
            seen.put("before", shown(other, queue));
            session.rollback();
            seen.put("undone", shown(other, queue));
            send(session, producer, 10, 3);
            session.commit();
            seen.put("done", shown(other, queue));
            MessageConsumer consumer = session.createConsumer(queue);
            seen.put("first", take(consumer, 2));
            session.rollback();
            List<Object> again = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Message message = consumer.receive(SECONDS);
                again.add(List.of(text(message), message.getJMSRedelivered(),
                    message.getIntProperty("JMSXDeliveryCount")));
            }
            seen.put("again", again);
            session.commit();
            seen.put("left", shown(other, queue));
        }
        return seen;
    }

    // Takes from one queue and answers into another one, undoing every third batch.
    private Object answering(String address) throws Exception {
        int undone = 0;
        try (Connection connection = connected()) {
            Session filling = plain(connection);
            send(filling, filling.createProducer(filling.createQueue(address)), 0, 60);
            Session session = inTransactions(connection);
            MessageConsumer consumer = session.createConsumer(session.createQueue(address));
            MessageProducer out = session.createProducer(session.createQueue(address + ".out"));
            int done = 0;
            for (int batch = 0; done < 60; batch++) {
                for (String body : take(consumer, 5)) {
                    out.send(session.createTextMessage(body));
                }
                if (batch % 3 == 2) {
                    session.rollback();
                    undone++;
                } else {
                    session.commit();
                    done += 5;
                }
            }
            MessageConsumer answers = filling.createConsumer(
                filling.createQueue(address + ".out"));
            return Map.of("undone", undone, "answers", take(answers, 60),
                "more", answers.receive(NOTHING) != null,
                "left", shown(filling, filling.createQueue(address)));
        }
    }

    private Object full(String address) throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        try (Connection connection = connected()) {
            Session session = inTransactions(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            send(session, producer, 0, 6);
            try {
                session.commit();
                seen.put("refused", null);
            } catch (JMSException error) {
                // This client calls it in doubt when it is told that it was rolled back, and
                // rolled back when it is told anything else.
                seen.put("refused", error.getMessage());
            }
            seen.put("kept", shown(plain(connection), queue));
            send(session, producer, 10, 2);
            session.commit();
            seen.put("later", shown(plain(connection), queue));
        }
        return seen;
    }

    // A consumer is closed while the transaction has its messages.
    private Object closing(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = inTransactions(connection);
            Queue queue = session.createQueue(address);
            send(session, session.createProducer(queue), 0, 4);
            session.commit();
            MessageConsumer first = session.createConsumer(queue);
            take(first, 2);
            first.close();
            session.rollback();
            MessageConsumer second = session.createConsumer(queue);
            List<String> came = take(second, 3);
            second.close();
            session.commit();
            return Map.of("came", came, "left", shown(plain(connection), queue));
        }
    }

    // Bodies of several frames in a transaction.
    private Object large(String address) throws Exception {
        byte[] bytes = new byte[1 << 20];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (i * 31);
        }
        try (Connection connection = connected()) {
            Session session = inTransactions(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 3; i++) {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(bytes);
                producer.send(message);
            }
            session.commit();
            MessageConsumer consumer = session.createConsumer(queue);
            boolean same = true;
            for (int i = 0; i < 3; i++) {
                BytesMessage message = (BytesMessage) consumer.receive(SECONDS);
                byte[] found = new byte[(int) message.getBodyLength()];
                message.readBytes(found);
                same = same && java.util.Arrays.equals(bytes, found);
            }
            session.commit();
            return Map.of("same", same, "left", shown(plain(connection), queue));
        }
    }

    // ---- what a queue does

    private Object selector(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            send(session, producer, 0, 10);
            producer.setPriority(9);
            send(session, producer, 10, 2);
            MessageConsumer odd = session.createConsumer(
                queue, "kind = 'odd' AND number BETWEEN 3 AND 7");
            List<String> few = take(odd, 3);
            boolean more = odd.receive(NOTHING) != null;
            odd.close();
            MessageConsumer urgent = session.createConsumer(queue, "JMSPriority > 5");
            return Map.of("odd", few, "more", more, "urgent", take(urgent, 2));
        }
    }

    private Object browser(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            send(session, session.createProducer(queue), 0, 6);
            List<String> even = new ArrayList<>();
            try (QueueBrowser browser = session.createBrowser(queue, "kind = 'even'")) {
                for (Object one : Collections.list(browser.getEnumeration())) {
                    even.add(text((Message) one));
                }
            }
            return Map.of("even", even, "all", shown(session, queue), "taken",
                take(session.createConsumer(queue), 6));
        }
    }

    private Object priorities(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            for (int priority = 0; priority < 10; priority++) {
                producer.setPriority(priority);
                producer.send(session.createTextMessage(Integer.toString(priority)));
            }
            return take(session.createConsumer(queue), 10);
        }
    }

    private Object delay(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            MessageConsumer consumer = session.createConsumer(queue);
            producer.setDeliveryDelay(900);
            long before = System.nanoTime();
            producer.send(session.createTextMessage("late"));
            boolean early = consumer.receive(NOTHING) != null;
            String body = text(consumer.receive(SECONDS));
            return Map.of("early", early, "body", body, "millis",
                TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before));
        }
    }

    private Object expiry(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            producer.setTimeToLive(50);
            producer.send(session.createTextMessage("gone"));
            Thread.sleep(200);
            producer.setTimeToLive(60_000);
            producer.send(session.createTextMessage("there"));
            return take(session.createConsumer(queue), 1);
        }
    }

    // ---- subscriptions

    private Connection named(String client) throws JMSException {
        Connection connection = factory.createConnection();
        connection.setClientID(client);
        connection.start();
        return connection;
    }

    private Object durable(String address) throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        try (Connection connection = named(address); Connection other = connected()) {
            Session session = plain(connection);
            Topic topic = session.createTopic(address);
            MessageConsumer consumer = session.createDurableSubscriber(
                topic, "sub", "kind = 'odd'", false);
            Session sending = plain(other);
            MessageProducer producer = sending.createProducer(topic);
            send(sending, producer, 0, 4);
            seen.put("live", take(consumer, 2));
            consumer.close();
            send(sending, producer, 4, 4);
            consumer = session.createDurableSubscriber(topic, "sub", "kind = 'odd'", false);
            seen.put("meanwhile", take(consumer, 2));
            consumer.close();
            session.unsubscribe("sub");
            send(sending, producer, 8, 4);
            consumer = session.createDurableSubscriber(topic, "sub", "kind = 'odd'", false);
            seen.put("anew", consumer.receive(NOTHING) != null);
            consumer.close();
            session.unsubscribe("sub");
        }
        return seen;
    }

    private Object shared(String address) throws Exception {
        try (Connection connection = named(address)) {
            Session session = plain(connection);
            Topic topic = session.createTopic(address);
            MessageConsumer one = session.createSharedDurableConsumer(topic, "s");
            MessageConsumer two = session.createSharedDurableConsumer(topic, "s");
            MessageConsumer alone = session.createConsumer(topic);
            send(session, session.createProducer(topic), 0, 10);
            List<String> all = take(alone, 10);
            List<String> between = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                String body = text(one.receive(NOTHING));
                body = body == null ? text(two.receive(NOTHING)) : body;
                between.add(body);
            }
            Collections.sort(between);
            one.close();
            two.close();
            session.unsubscribe("s");
            return Map.of("alone", all, "between", between);
        }
    }

    // Two consumers; the groups of what each of them got.
    private Object groups(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            List<MessageConsumer> consumers = new ArrayList<>();
            for (int i = 0; i < 2; i++) {
                consumers.add(plain(connection).createConsumer(queue));
            }
            MessageProducer producer = session.createProducer(queue);
            for (int i = 0; i < 20; i++) {
                TextMessage message = session.createTextMessage(Integer.toString(i));
                message.setStringProperty("JMSXGroupID", "g" + i % 4);
                message.setIntProperty("JMSXGroupSeq", 1 + i / 4);
                producer.send(message);
            }
            List<Object> found = new ArrayList<>();
            for (MessageConsumer consumer : consumers) {
                List<Object> own = new ArrayList<>();
                for (Message m = consumer.receive(1000); m != null; m = consumer.receive(NOTHING)) {
                    own.add(List.of(m.getStringProperty("JMSXGroupID"),
                        m.getIntProperty("JMSXGroupSeq")));
                }
                found.add(own);
            }
            return found;
        }
    }

    // ---- messages

    private Object bodies(String address) throws Exception {
        List<Object> seen = new ArrayList<>();
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            producer.send(session.createTextMessage("grün"));
            BytesMessage bytes = session.createBytesMessage();
            bytes.writeInt(7);
            bytes.writeUTF("bytes");
            producer.send(bytes);
            MapMessage map = session.createMapMessage();
            map.setLong("long", 1L << 40);
            map.setString("text", "map");
            producer.send(map);
            StreamMessage stream = session.createStreamMessage();
            stream.writeBoolean(true);
            stream.writeDouble(0.5);
            producer.send(stream);
            producer.send(session.createMessage());
            producer.send(session.createObjectMessage("object"));
            MessageConsumer consumer = session.createConsumer(queue);
            seen.add(text(consumer.receive(SECONDS)));
            BytesMessage one = (BytesMessage) consumer.receive(SECONDS);
            seen.add(List.of(one.readInt(), one.readUTF()));
            MapMessage two = (MapMessage) consumer.receive(SECONDS);
            seen.add(List.of(two.getLong("long"), two.getString("text")));
            StreamMessage three = (StreamMessage) consumer.receive(SECONDS);
            seen.add(List.of(three.readBoolean(), three.readDouble()));
            seen.add(consumer.receive(SECONDS) instanceof TextMessage ? "text" : "no body");
            seen.add(consumer.receive(SECONDS).getBody(String.class));
        }
        return seen;
    }

    private Object headers(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            MessageProducer producer = session.createProducer(queue);
            TextMessage message = session.createTextMessage("x");
            message.setJMSCorrelationID("correlation");
            message.setJMSType("type");
            message.setJMSReplyTo(session.createTopic("answers"));
            message.setBooleanProperty("yes", true);
            message.setDoubleProperty("half", 0.5);
            producer.send(message, DeliveryMode.PERSISTENT, 7, 60_000);
            Message found = session.createConsumer(queue).receive(SECONDS);
            Map<String, Object> seen = new LinkedHashMap<>();
            seen.put("correlation", found.getJMSCorrelationID());
            seen.put("type", found.getJMSType());
            seen.put("reply", ((Topic) found.getJMSReplyTo()).getTopicName());
            seen.put("destination", ((Queue) found.getJMSDestination()).getQueueName());
            seen.put("mode", found.getJMSDeliveryMode());
            seen.put("priority", found.getJMSPriority());
            seen.put("id", found.getJMSMessageID().equals(message.getJMSMessageID()));
            seen.put("expires", found.getJMSExpiration() == message.getJMSExpiration());
            seen.put("yes", found.getBooleanProperty("yes"));
            seen.put("half", found.getDoubleProperty("half"));
            return seen;
        }
    }

    private Object request(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            TemporaryQueue answers = session.createTemporaryQueue();
            MessageConsumer mine = session.createConsumer(answers);
            TextMessage question = session.createTextMessage("question");
            question.setJMSReplyTo(answers);
            session.createProducer(queue).send(question);
            Session serving = plain(connection);
            Message asked = serving.createConsumer(queue).receive(SECONDS);
            TextMessage answer = serving.createTextMessage(text(asked).toUpperCase());
            answer.setJMSCorrelationID(asked.getJMSMessageID());
            serving.createProducer(asked.getJMSReplyTo()).send(answer);
            Message found = mine.receive(SECONDS);
            boolean same = question.getJMSMessageID().equals(found.getJMSCorrelationID());
            mine.close();
            answers.delete();
            return Map.of("answer", text(found), "same", same);
        }
    }

    private Object recover(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            Queue queue = session.createQueue(address);
            send(session, session.createProducer(queue), 0, 3);
            MessageConsumer consumer = session.createConsumer(queue);
            List<String> first = take(consumer, 2);
            session.recover();
            List<String> again = take(consumer, 2);
            Message last = consumer.receive(SECONDS);
            last.acknowledge();
            return Map.of("first", first, "again", again, "last", text(last), "left",
                shown(plain(connection), queue));
        }
    }

    private Object listener(String address) throws Exception {
        try (Connection connection = connected()) {
            Session session = plain(connection);
            Queue queue = session.createQueue(address);
            LinkedBlockingQueue<String> came = new LinkedBlockingQueue<>();
            Session listening = inTransactions(connection);
            listening.createConsumer(queue).setMessageListener(message -> {
                try {
                    came.add(text(message));
                    listening.commit();
                } catch (JMSException error) {
                    came.add(error.toString());
                }
            });
            send(session, session.createProducer(queue), 0, 50);
            List<String> found = new ArrayList<>();
            for (int i = 0; i < 50; i++) {
                found.add(came.poll(SECONDS, TimeUnit.MILLISECONDS));
            }
            return found;
        }
    }

    // ---- login

    // Where others have an address there is `user,password,mechanism`.
    private Object login(String words) throws Exception {
        String[] parts = words.split(",");
        String uri = factory.getRemoteURI();
        String mechanism = (uri.contains("?") ? "&" : "?") + "amqp.saslMechanisms=" + parts[2];
        JmsConnectionFactory own = new JmsConnectionFactory(parts[0], parts[1], uri + mechanism);
        try (Connection connection = own.createConnection()) {
            connection.start();
            return "open";
        } catch (JMSException error) {
            return error.getClass().getSimpleName();
        }
    }

    // Where others have an address there is `user,password,act,address`; the answer is "done", or why
    // the act was refused.
    private Object permitted(String words) throws Exception {
        String[] parts = words.split(",");
        JmsConnectionFactory own =
            new JmsConnectionFactory(parts[0], parts[1], factory.getRemoteURI());
        try (Connection connection = own.createConnection()) {
            connection.setClientID("permitted-" + System.nanoTime());
            connection.start();
            act(plain(connection), parts[2], parts[3]);
            return "done";
        } catch (JMSException error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }

    private static void act(Session session, String act, String address) throws JMSException {
        switch (act) {
            case "send", "make-queue" ->
                send(session, session.createProducer(session.createQueue(address)), 0, 1);
            case "make-address" ->
                send(session, session.createProducer(session.createTopic(address)), 0, 1);
            case "consume" -> session.createConsumer(session.createQueue(address)).close();
            case "browse" -> {
                QueueBrowser browser = session.createBrowser(session.createQueue(address));
                browser.getEnumeration().hasMoreElements();
                browser.close();
            }
            case "subscribe" -> session.createConsumer(session.createTopic(address)).close();
            case "subscribe-durably" ->
                session.createDurableConsumer(session.createTopic(address), "mine").close();
            case "unsubscribe" -> {
                session.createDurableConsumer(session.createTopic(address), "mine").close();
                session.unsubscribe("mine");
            }
            case "temporary" -> {
                TemporaryQueue answers = session.createTemporaryQueue();
                MessageConsumer consumer = session.createConsumer(answers);
                send(session, session.createProducer(answers), 0, 1);
                consumer.receive(SECONDS);
                consumer.close();
            }
            default -> throw new JMSException("no such act: " + act);
        }
    }

    // ---- JSON

    private static String json(Object value) {
        StringBuilder out = new StringBuilder();
        if (value instanceof Map<?, ?> map) {
            map.forEach((key, one) ->
                out.append(out.isEmpty() ? "" : ", ").append(json(key)).append(": ")
                    .append(json(one)));
            return "{" + out + "}";
        }
        if (value instanceof List<?> list) {
            list.forEach(one -> out.append(out.isEmpty() ? "" : ", ").append(json(one)));
            return "[" + out + "]";
        }
        if (value instanceof String text) {
            for (char c : text.toCharArray()) {
                out.append(c < ' ' || c > '~' || c == '"' || c == '\\'
                    ? String.format("\\u%04x", (int) c) : c);
            }
            return "\"" + out + "\"";
        }
        return String.valueOf(value);
    }
}
