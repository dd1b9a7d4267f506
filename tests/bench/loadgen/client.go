package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"time"
)

const maxAnswerBytes = 256 << 20

// client is one connection. Frames are prebuilt; send only stamps the correlation id. Answers must come in order.
type client struct {
	conn     net.Conn
	reader   *bufio.Reader
	buffer   []byte
	sent     int32
	answered int32
}

func dial(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (c *client) close() { c.conn.Close() }

func (c *client) send(frame []byte) error {
	c.sent++
	bigEndian.PutUint32(frame[correlationAt:], uint32(c.sent))
	_, err := c.conn.Write(frame)
	return err
}

// receive returns the next answer without its length; it is valid until the next call.
func (c *client) receive() ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(c.reader, prefix[:]); err != nil {
		return nil, err
	}
	size := int(bigEndian.Uint32(prefix[:]))
	if size < 4 || size > maxAnswerBytes {
		return nil, fmt.Errorf("answer of %d bytes", size)
	}
	if cap(c.buffer) < size {
		c.buffer = make([]byte, size)
	}
	answer := c.buffer[:size]
	if _, err := io.ReadFull(c.reader, answer); err != nil {
		return nil, err
	}
	c.answered++
	if got := int32(bigEndian.Uint32(answer)); got != c.answered {
		return nil, fmt.Errorf("answer %d came where %d was due", got, c.answered)
	}
	return answer, nil
}

func (c *client) ask(frame []byte) ([]byte, error) {
	if err := c.send(frame); err != nil {
		return nil, err
	}
	return c.receive()
}
